"""Workers that are lost: how often their tests are tried again, and what they come to at last."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

import fakes
from fakes import Far, report
from pytest_remotegpu.errors import FarSideError
from pytest_remotegpu.protocol import events, frames, orders
from stage import FAR, HERE, PASSED, Played, Stage

from .running import run, said, until

PARTS: dict[str, list[events.Event]] = {
    "at once": [],
    "during the call": [report(0, "setup")],
    "during the teardown": [report(0, "setup"), report(0, "call")],
    "before the word that ends it": [
        report(0, "setup"), report(0, "call"), report(0, "teardown"),
    ],
}  # fmt: skip
"""What a worker has said of the test in which it is lost."""


def serves(far: Far) -> None:
    """Be an honest worker."""
    far.greet()
    far.serve()


def never_comes(_far: Far) -> None:
    """Be lost before the hello."""


def idles(far: Far) -> None:
    """Be lost after the hello, before any test."""
    far.greet()
    _ = far.order


def lost_in(*said: events.Event) -> fakes.Script:
    """Make a script that is lost while the first test of its stretch runs."""

    def script(far: Far) -> None:
        far.greet()
        first = far.order.run.first
        far.say(events.Started(first), *(_at(first, event) for event in said))

    return script


def _at(place: int, event: events.Event) -> events.Event:
    assert isinstance(event, events.Report)
    return report(place, (event.when or b"").decode())


def all_passed(played: Played) -> None:
    assert played.ret == 0, played.text
    assert [played.phases[id] for id in (*FAR, *HERE)] == [PASSED] * 5


def test_honest_worker_is_asked_once(stage: Stage) -> None:
    played = stage.run(serves)
    all_passed(played)
    assert (played.workers, played.made) == (1, [])


# ---------------------------------------------------------------- while no test runs


def test_lost_before_the_hello(stage: Stage) -> None:
    """A far side that can't start once can't start: that is said at once."""
    played = stage.run(never_comes)
    played.caught(said="the scripted worker is gone")
    assert played.workers == 1


@pytest.mark.parametrize("collects", ["far", "here"])
def test_killed_before_the_hello(pytester: pytest.Pytester, collects: str) -> None:
    """What killed it may not do so again, unlike what lets no worker start."""
    pytester.makepyfile(test_it="import pytest\n@pytest.mark.gpu\ndef test_far(): pass\n")
    start = pytester.path / "start.sh"
    start.write_text('[ -e STARTED ] || { touch STARTED; kill -9 $$; }\nexec "$@"\n')
    far = f"--remote=command:env PYTEST_REMOTEGPU_PRETEND_GPUS=1 sh {start}"
    own = ("-o", f"remotegpu_collect={collects}", "-o", f"remotegpu_python={sys.executable}")
    result = run(pytester, far, *own)
    assert result.ret == 0
    lost = "was lost while it collected: " if collects == "far" else "was lost: "
    assert lost in said(result)


@pytest.mark.parametrize("collects", ["far", "here"])
def test_killed_before_each_hello(pytester: pytest.Pytester, collects: str) -> None:
    pytester.makepyfile(test_it="import pytest\n@pytest.mark.gpu\ndef test_far(): pass\n")
    start = pytester.path / "start.sh"
    start.write_text("echo x >>STARTED; kill -9 $$\n")
    own = ("-o", f"remotegpu_collect={collects}", "-o", f"remotegpu_python={sys.executable}")
    result = run(pytester, f"--remote=command:sh {start}", *own)
    result.assert_outcomes(errors=1)
    assert (pytester.path / "STARTED").read_text() == "x\n" * 4
    assert "ended with signal 9" in said(result)


def test_none_to_be_had(stage: Stage) -> None:
    played = stage.run(FarSideError("no GPU is free"))
    played.caught(said="no GPU is free")


def test_lost_while_idle_and_then_not(stage: Stage) -> None:
    played = stage.run(idles, idles, idles, serves)
    all_passed(played)
    assert played.workers == 4


def test_progress_counts_anew(stage: Stage) -> None:
    """Each worker runs one test before it is lost, between two that run none."""

    def runs_one(far: Far) -> None:
        far.greet()
        far.run(far.order.run.first)

    played = stage.run(idles, runs_one, idles, idles, runs_one, idles, idles, serves)
    all_passed(played)


def test_none_to_be_had_after_a_loss(stage: Stage) -> None:
    def runs_one(far: Far) -> None:
        far.greet()
        far.run(far.order.run.first)

    played = stage.run(runs_one, FarSideError("no GPU is free"))
    played.caught(said="no GPU is free", guilty=FAR[1:])


@pytest.mark.parametrize("words", [[], [events.StretchEnded()]], ids=["at once", "a word later"])
def test_lost_after_the_last_verdict(words: list[events.Event], stage: Stage) -> None:
    """Verdicts stand; but nobody knows what the far session's end would have come to."""

    def says_no_farewell(far: Far) -> None:
        far.greet()
        far.run(0, 1, 2)
        far.say(*words)

    played = stage.run(says_no_farewell)
    assert [played.phases[id] for id in (*FAR, *HERE)] == [PASSED] * 5
    assert played.ret == 1
    assert "was lost before it said how its session ended: " in played.text


@pytest.mark.parametrize("words", [[], [events.StretchEnded()]], ids=["at once", "a word later"])
def test_untrue_after_the_last_verdict(words: list[events.Event], stage: Stage) -> None:
    """No test can say so; the session has to."""

    def lies(far: Far) -> None:
        far.greet()
        far.run(0, 1, 2)
        far.say(*words)
        far.raw(frames.encode_frame(far.order.worker, "another", far.sent, b"\x90"))

    played = stage.run(lies)
    assert [played.phases[id] for id in (*FAR, *HERE)] == [PASSED] * 5
    assert played.ret == 1
    assert "cause: " in played.text


@pytest.mark.parametrize("seconds", [0.6, 60.0], ids=["in time", "never"])
def test_an_end_may_take_as_long_as_a_test(
    seconds: float, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_remotegpu.far.CLOSING", 0.2)

    def ends_late(far: Far) -> None:
        far.greet()
        far.run(0, 1, 2)
        far.say(events.StretchEnded())
        far.stopped.wait(seconds)
        far.say(events.Ended())

    played = stage.run(ends_late, args=("--remote-timeout=1.5",))
    assert [played.phases[id] for id in (*FAR, *HERE)] == [PASSED] * 5
    assert "waiting for the end of the far session on scripted-1" in played.text
    late = "it has not ended after 1.7 s" in played.text
    assert (late, played.ret) == ((True, 1) if seconds > 1 else (False, 0))


# ---------------------------------------------------------------- while a test runs


@pytest.mark.parametrize("said", PARTS.values(), ids=PARTS)
def test_lost_once_in_a_test(said: list[events.Event], stage: Stage) -> None:
    """The test is tried again, alone; nothing is left of what the lost worker has said of it."""
    stretches: list[tuple[int, int]] = []

    def serves_again(far: Far) -> None:
        stretches.append((far.order.run.first, far.order.run.last))
        serves(far)

    played = stage.run(lost_in(*said), serves_again)
    all_passed(played)
    assert played.workers == 2
    assert stretches == [(0, 1)]


@pytest.mark.parametrize("said", PARTS.values(), ids=PARTS)
def test_lost_twice_in_a_test(said: list[events.Event], stage: Stage) -> None:
    """It is the test: one failure, and the others run."""
    played = stage.run(lost_in(*said), lost_in(*said), serves)
    played.caught(said="lost twice while this test ran", guilty=FAR[:1])
    assert played.workers == 3


def test_lost_once_in_each_test(stage: Stage) -> None:
    def loses_the_second(far: Far) -> None:
        far.greet()
        far.run(far.order.run.first)
        far.say(events.StretchEnded())
        message = far.message()
        far.say(events.Started(message.first))

    played = stage.run(lost_in(), loses_the_second, loses_the_second, serves)
    all_passed(played)


def test_lost_always(stage: Stage) -> None:
    played = stage.run(lost_in(report(0, "setup")))
    played.caught(said="lost twice while this test ran")
    assert played.workers == 6


def test_lost_within_a_frame(stage: Stage) -> None:
    def cut_short(far: Far) -> None:
        far.greet()
        far.run(0)
        whole = frames.encode_events([events.Started(1)])
        order = far.order
        far.raw(frames.encode_frame(order.worker, order.nonce, far.sent, whole)[:-3])

    played = stage.run(cut_short, serves)
    all_passed(played)
    assert played.workers == 2


def test_lost_twice_counts_as_a_failure_for_x(stage: Stage) -> None:
    played = stage.run(lost_in(), lost_in(), serves, args=("-x",))
    assert played.ret == 1, played.text
    assert played.verdicts((*FAR, *HERE)) == ["failed", "none", "none", "none", "none"]


# ---------------------------------------------------------------- machines that are taken away


def taken_in(*said: events.Event) -> fakes.Script:
    """Make a script that is preempted while the first test of its stretch runs."""

    def script(far: Far) -> None:
        lost_in(*said)(far)
        far.preempted = True

    return script


def taken_idle(far: Far) -> None:
    """Be preempted after the hello, before any test."""
    idles(far)
    far.preempted = True


def taken_at_once(far: Far) -> None:
    """Be preempted before the hello."""
    far.preempted = True


@pytest.mark.parametrize("said", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("times", [1, 2, 3])
def test_preempted_in_a_test(said: list[events.Event], times: int, stage: Stage) -> None:
    """It is no test's doing: what has no verdict goes on, in its order."""
    stretches: list[tuple[int, int]] = []

    def serves_again(far: Far) -> None:
        stretches.append((far.order.run.first, far.order.run.last))
        serves(far)

    played = stage.run(*[taken_in(*said)] * times, serves_again)
    all_passed(played)
    assert (played.workers, stretches) == (times + 1, [(0, 3)])
    assert played.text.count("was preempted: ") == 1


@pytest.mark.parametrize("said", PARTS.values(), ids=PARTS)
def test_preempted_again_and_again_in_a_test(said: list[events.Event], stage: Stage) -> None:
    """After three more tries each one is an error, none of them a failure."""
    played = stage.run(taken_in(*said))
    assert played.ret == 1
    assert played.workers == 4
    assert [played.phases[id] for id in FAR] == [[("setup", "failed"), ("teardown", "passed")]] * 3
    assert "its worker was preempted 4 times" in played.texts[FAR[0]]
    assert "4 times in a row" in played.texts[FAR[1]]
    assert played.verdicts(HERE) == ["passed"] * 2
    assert "3 not run for want of a far side" in played.text


@pytest.mark.parametrize("script", [taken_idle, taken_at_once])
def test_preempted_while_idle(script: fakes.Script, stage: Stage) -> None:
    played = stage.run(script, script, script, serves)
    all_passed(played)
    assert played.workers == 4


@pytest.mark.parametrize("script", [taken_idle, taken_at_once])
def test_always_preempted_while_idle(script: fakes.Script, stage: Stage) -> None:
    played = stage.run(script)
    played.caught(said="not run")
    assert played.workers == 4
    assert "workers were preempted, or lost while idle, 4 times in a row" in played.text


def test_preempted_and_lost_while_idle_count_together(stage: Stage) -> None:
    played = stage.run(taken_in(), idles, taken_idle, idles)
    played.caught(said="not run")
    assert played.workers == 4


def test_preempted_and_lost_in_a_test_do_not(stage: Stage) -> None:
    """What a test may have done is one thing, what it can't have done another."""
    played = stage.run(taken_in(), lost_in(), taken_in(), taken_in(), serves)
    all_passed(played)
    assert played.workers == 5


def test_a_verdict_begins_a_new_row(stage: Stage) -> None:
    def runs_one(far: Far) -> None:
        far.greet()
        far.run(far.order.run.first)
        far.say(events.Started(far.order.run.first + 1))
        far.preempted = True

    played = stage.run(taken_in(), taken_in(), taken_in(), runs_one, taken_in(), taken_in(), serves)
    all_passed(played)


def test_a_lie_on_a_machine_that_is_taken_away(stage: Stage) -> None:
    """It is no excuse."""

    def lies(far: Far) -> None:
        far.greet()
        far.preempted = True
        far.say(events.Started(7))

    played = stage.run(lies)
    played.caught(said="broke the protocol")
    assert played.workers == 1


def vacate(far: Far) -> None:
    """Wait to be asked to end after the running test."""
    said = far.message()
    while isinstance(said, orders.Finish):  # that nothing follows may have been said before
        said = far.message()
    assert said == orders.Withdraw(running=True)
    assert far.message() == orders.Finish()


def vacates(far: Far, *, ends: bool = True) -> None:
    """Be told that the machine is taken away while a test runs, and end after that test."""
    far.greet()
    first = far.order.run.first
    far.say(events.Started(first))
    far.preempted = True
    far.warned()
    vacate(far)
    phases = [report(first, when) for when in ("setup", "call", "teardown")]
    far.say(*phases, events.Finished(first), events.StretchEnded())
    if ends:
        far.say(events.Ended())


@pytest.mark.parametrize("ends", [True, False])
def test_a_notice_lets_the_running_test_come_to_its_end(ends: bool, stage: Stage) -> None:
    stretches: list[tuple[int, int]] = []

    def serves_again(far: Far) -> None:
        stretches.append((far.order.run.first, far.order.run.last))
        serves(far)

    played = stage.run(lambda far: vacates(far, ends=ends), serves_again)
    all_passed(played)
    assert (played.workers, stretches) == (2, [(0, 2)])
    assert "was preempted: " in played.text


def test_a_notice_in_the_last_test(stage: Stage) -> None:
    """Nothing is left for another worker, and none is asked for."""

    def last(far: Far) -> None:
        far.greet()
        far.run(0, 1)
        far.say(events.Started(2))
        far.preempted = True
        far.warned()
        vacate(far)
        phases = [report(2, when) for when in ("setup", "call", "teardown")]
        far.say(*phases, events.Finished(2), events.StretchEnded(), events.Ended())

    played = stage.run(last)
    all_passed(played)
    assert played.workers == 1


def test_a_notice_and_the_first_failure(stage: Stage) -> None:
    """That the session stops after it counts for more."""

    def fails(far: Far) -> None:
        far.greet()
        far.say(events.Started(0))
        far.preempted = True
        far.warned()
        vacate(far)
        phases = [report(0, "setup"), report(0, "call", "failed"), report(0, "teardown")]
        far.say(*phases, events.Finished(0))
        far.say(events.StretchEnded(b"stopping after 1 failures"), events.Ended())

    played = stage.run(fails, args=("-x",))
    assert played.ret == 1, played.text
    assert played.verdicts((*FAR, *HERE)) == ["failed", "none", "none", "none", "none"]
    assert played.workers == 1


# ---------------------------------------------------------------- real processes that are killed

KILLS = """
import os, signal, time
import pytest
pytestmark = pytest.mark.gpu

def ancestors():
    found = [os.getpid()]
    for _ in range(2):
        with open(f"/proc/{found[-1]}/stat") as file:
            found.append(int(file.read().rpartition(")")[2].split()[1]))
    return found

def note():
    with open("pids.txt", "a") as file:
        print(*ancestors(), file=file)

def test_a():
    note()

def test_b():
    note()
    with open("attempts.txt", "a") as file:
        file.write("x")
    if os.path.getsize("attempts.txt") <= TIMES:
        time.sleep(0.2)  # until it is known over there that this test runs
        os.kill(ancestors()[WHOM], signal.SIGKILL)
        time.sleep(30)

def test_c():
    note()
"""


def running(pid: int) -> bool:
    """Say whether a process still runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.timeout(60)
@pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")
@pytest.mark.parametrize(
    ("whom", "times", "attempts", "verdict"),
    [
        ("runner", 1, 1, "failed"),
        ("zygote", 9, None, "failed"),
        ("supervisor", 1, 2, "passed"),
        ("supervisor", 9, 2, "failed"),
    ],
)
def test_killed_process(
    whom: str, times: int, attempts: int | None, verdict: str | None, stage: Stage
) -> None:
    """A dead runner is the test's doing, a dead worker is nobody's until it happens again.

    A dead zygote may count as either. Whatever died, each test has one outcome; none survives.
    """
    at = ["runner", "zygote", "supervisor"].index(whom)
    source = KILLS.replace("TIMES", str(times)).replace("WHOM", str(at))
    (stage.path / "test_far.py").write_text(source)
    played = stage.run_on("local:cpu", "--remote-fresh")
    assert "INTERNALERROR>" not in played.text, played.text
    assert verdict in (None, played.verdict(FAR[1])), played.text
    assert played.verdicts((FAR[0], FAR[2], *HERE)) == ["passed"] * 4, played.text
    assert played.ret == (0 if played.verdict(FAR[1]) == "passed" else 1), played.text
    assert attempts in (None, (stage.path / "attempts.txt").stat().st_size)
    if verdict == "failed" and whom == "runner":
        assert signal.SIGKILL.name in played.text
    pids = [int(word) for word in (stage.path / "pids.txt").read_text().split()]
    assert until(lambda: not any(map(running, pids)), 5.0), list(filter(running, pids))
