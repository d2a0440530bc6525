"""``--remote-workers=N``: several workers share tests; each comes back once, whoever is lost."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import fakes
from fakes import Far, report
from pytest_remotegpu.errors import FarSideError
from pytest_remotegpu.protocol import events, orders
from stage import FAR, HERE, PASSED, Played, Stage

from .running import CPU, LONG, Started, run, said, until
from .sharing import MODULE, TOGETHER, known, lines, modules

TWO = "--remote-workers=2"


def serves(far: Far) -> None:
    """Be an honest worker."""
    far.greet()
    far.serve()


def serves_later(far: Far) -> None:
    """Be an honest worker that is handed what others have left."""
    time.sleep(0.3)
    serves(far)


def starts(far: Far) -> orders.Run | None:
    """Greet, collect, and be handed the first tests; others may be quicker, and then end well."""
    far.greet()
    first = far.order.run
    assert (first.first, first.last) == (0, 0)
    far.say(events.StretchEnded())
    run_ = far.next_run()
    if isinstance(run_, orders.Run):
        return run_
    far.say(events.Ended())
    return None


def idles(far: Far) -> None:
    """Be lost before anything is handed over."""
    far.greet()
    _ = far.order


def lost_in(*phases: str) -> fakes.Script:
    """Make a script that is lost while its first test runs."""

    def script(far: Far) -> None:
        run_ = starts(far)
        if run_ is not None:
            reports = [report(run_.first, when) for when in phases]
            far.say(events.Started(run_.first), *reports)

    return script


def all_passed(played: Played) -> None:
    assert played.ret == 0, played.text
    assert [played.phases[id] for id in (*FAR, *HERE)] == [PASSED] * 5


# ---------------------------------------------------------------- whoever is lost


@pytest.mark.parametrize("number", [2, 3, 9])
def test_honest_workers_share_the_tests(number: int, stage: Stage) -> None:
    played = stage.run(serves, args=(f"--remote-workers={number}",))
    all_passed(played)
    assert 1 <= played.workers <= 3


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("phases", [(), ("setup",), ("setup", "call", "teardown")], ids=len)
def test_one_is_lost_in_a_test(phases: tuple[str, ...], number: int, stage: Stage) -> None:
    played = stage.run(lost_in(*phases), serves_later, args=(f"--remote-workers={number}",))
    all_passed(played)
    assert "was lost: " in played.text


@pytest.mark.parametrize("number", [2, 3])
def test_all_are_lost_in_a_test_once(number: int, stage: Stage) -> None:
    scripts = [lost_in("setup")] * number
    played = stage.run(*scripts, serves, args=(f"--remote-workers={number}",))
    assert "INTERNALERROR>" not in played.text
    assert set(played.verdicts()) <= {"passed", "failed"}
    failed = played.verdicts().count("failed")
    assert played.text.count("lost twice while this test ran") == failed
    assert played.ret == bool(failed)


@pytest.mark.parametrize("number", [2, 3])
def test_all_are_always_lost_in_a_test(number: int, stage: Stage) -> None:
    """It is the tests: each fails once it has been tried twice."""
    played = stage.run(lost_in("setup"), args=(f"--remote-workers={number}",))
    played.caught(said="lost twice while this test ran")


@pytest.mark.parametrize("number", [2, 3])
def test_all_are_always_lost_while_idle(number: int, stage: Stage) -> None:
    played = stage.run(idles, args=(f"--remote-workers={number}",))
    played.caught(said="not run")
    assert played.workers <= 4 * number


def test_one_is_always_lost_while_idle(stage: Stage) -> None:
    """The other one runs it all; that fewer workers were had is said."""
    played = stage.run(serves_later, idles, args=(TWO,))
    all_passed(played)


def test_none_is_to_be_had(stage: Stage) -> None:
    played = stage.run(FarSideError("no GPU is free"), args=(TWO,))
    played.caught(said="no GPU is free")
    assert played.workers == 1


def test_a_second_one_is_not_to_be_had(stage: Stage) -> None:
    played = stage.run(serves, FarSideError("no GPU is free"), args=(TWO,))
    all_passed(played)
    assert "note: a worker for 1 GPU is done without: no GPU is free" in played.text


def test_one_that_never_starts_holds_nobody_up(stage: Stage) -> None:
    def hangs(far: Far) -> None:
        far.greet()
        far.stopped.wait(fakes.PATIENCE)

    began = time.monotonic()
    played = stage.run(serves, hangs, args=(TWO, "--remote-timeout=1"))
    assert played.verdicts((*FAR, *HERE)) == ["passed"] * 5
    assert time.monotonic() - began < fakes.PATIENCE


@pytest.mark.parametrize("first", [True, False], ids=["the first", "the second"])
def test_one_lies(first: bool, stage: Stage) -> None:
    """What it had begun is an error; what it had not, another worker runs."""

    def begins_what_is_not_its_own(far: Far) -> None:
        run_ = starts(far)
        if run_ is not None:
            far.say(events.Started(run_.last % 3))

    scripts = [begins_what_is_not_its_own, serves]
    played = stage.run(*(scripts if first else scripts[::-1]), serves, args=(TWO,))
    assert played.ret in (0, 1)
    assert all(verdict in ("passed", "failed") for verdict in played.verdicts())
    assert "broke the protocol" in played.text or played.ret == 0


def test_one_lies_about_a_test_that_it_runs(stage: Stage) -> None:
    def says_too_much(far: Far) -> None:
        run_ = starts(far)
        assert run_ is not None
        far.say(events.Started(run_.first), events.Withdrawn(run_.first, run_.last))

    played = stage.run(says_too_much, serves_later, args=(TWO,))
    assert played.ret == 1
    assert played.verdicts().count("failed") == 1
    assert "is given back that does not wait" in played.text


def test_tests_are_skipped_silently(stage: Stage) -> None:
    """A stretch that ends with tests not run is an error for each of them."""

    def skips(far: Far) -> None:
        far.greet()
        message = far.order.run
        while isinstance(message, orders.Run):
            far.say(events.StretchEnded())
            message = far.next_run()
        far.say(events.Ended())

    played = stage.run(skips, args=(TWO,))
    played.caught(said="ended its stretch without having run this test")


def test_refusal_of_all(stage: Stage) -> None:
    def cannot(far: Far) -> None:
        far.greet()
        _ = far.order
        far.say(events.StartFailed(b"conftest.py does not load", usage=True), events.Ended())

    played = stage.run(cannot, args=(TWO,))
    assert played.ret in (2, 4)  # a local test may have been quicker
    assert "conftest.py does not load" in played.text


# ---------------------------------------------------------------- real workers


def test_fixtures_live_once_in_each_worker_and_modules_stay_whole(
    pytester: pytest.Pytester,
) -> None:
    modules(pytester, 4, MODULE + TOGETHER.replace("FILE", "session.txt").lstrip("\n"))
    known(pytester, **{f"test_m{at}": 0.05 for at in range(4)})
    result = run(pytester, CPU, TWO)
    result.assert_outcomes(passed=16)
    assert "1 GPU   2 workers   16 tests" in said(result)
    own = [lines(pytester, f"m{at}.txt") for at in range(4)]
    assert [len(pids) for pids in own] == [1] * 4
    assert sorted(lines(pytester, "session.txt")) == sorted({pid for pids in own for pid in pids})
    assert len(set(lines(pytester, "session.txt"))) == 2
    assert sorted(lines(pytester, "session.txt")) == sorted(lines(pytester, "session-ended.txt"))


def test_the_longest_goes_first_by_earlier_sessions(pytester: pytest.Pytester) -> None:
    modules(pytester, 3)
    known(pytester, test_m0=0.1, test_m1=0.2, test_m2=0.3)
    result = run(pytester, "--remote=local:cpu:1", "-v", TWO)  # one GPU, so one worker
    result.assert_outcomes(passed=12)
    assert "--remote-workers=2: local:cpu has 1 GPU, so at most 1 worker for 1 GPU" in said(result)
    result = run(pytester, CPU, TWO, "--remote-plan")
    groups = [line.split()[-3] for line in result.outlines if "tests  test_m" in line]
    assert groups[0] == "test_m2.py::test_it[0]", result.outlines


def test_durations_are_kept(pytester: pytest.Pytester) -> None:
    modules(pytester, 1)
    run(pytester, CPU).assert_outcomes(passed=4)
    path = pytester.path / ".pytest_cache/v/remotegpu/durations"
    found = json.loads(path.read_text())
    assert list(found) == [f"test_m0.py::test_it[{n}]" for n in range(4)]
    assert all(0.05 <= seconds < 5 for seconds in found.values())


@pytest.mark.parametrize("garbage", ["", "{", "[1]", '{"a": "b"}', "null", "\0"])
def test_durations_that_are_garbage(garbage: str, pytester: pytest.Pytester) -> None:
    modules(pytester, 1)
    known(pytester)
    (pytester.path / ".pytest_cache/v/remotegpu/durations").write_text(garbage)
    result = run(pytester, CPU, TWO)
    result.assert_outcomes(passed=4)


def test_without_pytests_cache(pytester: pytest.Pytester) -> None:
    modules(pytester, 2)
    result = run(pytester, CPU, TWO, "-p", "no:cacheprovider")
    result.assert_outcomes(passed=8)


LATE = """
    import os, time
    import pytest
    pytestmark = pytest.mark.gpu

    @pytest.mark.parametrize("n", range(6))
    def test_it(n):
        with open("pids.txt", "a") as file:
            file.write(f"{os.getpid()} ")
        TOGETHER
        time.sleep(0.4)
""".replace("        TOGETHER", TOGETHER.replace("FILE", "pids.txt"))


SHORT = """
    import time
    import pytest

    @pytest.mark.gpu
    def test():
        with open("pids.txt", "a") as file:
            file.write("short ")
        TOGETHER
""".replace("        TOGETHER", TOGETHER.replace("FILE", "pids.txt"))


def test_a_module_that_alone_would_keep_the_session_waiting(pytester: pytest.Pytester) -> None:
    modules(pytester, 1, LATE)
    result = run(pytester, CPU, TWO)
    result.assert_outcomes(passed=6)
    counts = Counter(lines(pytester, "pids.txt")).values()
    assert min(counts) in (2, 3)  # the first to start has more


def test_a_late_worker_gives_back_what_it_has_not_begun(pytester: pytest.Pytester) -> None:
    """The first module is taken for a short one; it is not, and the second worker helps."""
    modules(pytester, 2, LATE)
    pytester.makepyfile(test_m1=SHORT)
    path = pytester.path / ".pytest_cache/v/remotegpu/durations"
    path.parent.mkdir(parents=True)
    path.write_text(
        json.dumps({"test_m1.py::test": 5.0} | {f"test_m0.py::test_it[{n}]": 0.4 for n in range(6)})
    )
    result = run(pytester, CPU, TWO)
    result.assert_outcomes(passed=7)
    assert len({*lines(pytester, "pids.txt")} - {"short"}) == 2


def test_properties_of_the_suite_are_written_once(pytester: pytest.Pytester) -> None:
    modules(pytester, 2)
    (pytester.path / "conftest.py").write_text("""
import pytest

@pytest.fixture(scope="session")
def model(record_testsuite_property):
    record_testsuite_property("seed", "7")
""")
    run(pytester, CPU, TWO, "--junitxml=junit.xml").assert_outcomes(passed=8)
    assert (pytester.path / "junit.xml").read_text().count('name="seed"') == 1


# ---------------------------------------------------------------- ends

KILLS = """
import os, signal, time
import pytest
pytestmark = pytest.mark.gpu

def worker():
    pid = os.getpid()
    for _ in range(UP):
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
    return pid

@pytest.mark.parametrize("n", range(6))
def test_it(n):
    with open(f"ran-NAME-{n}.txt", "a") as file:
        file.write("x")
    time.sleep(0.15)
    if n == 2 and os.path.getsize(f"ran-NAME-{n}.txt") <= TIMES:
        os.kill(worker(), signal.SIGKILL)
        time.sleep(30)
"""


@pytest.mark.timeout(90)
@pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")
@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize(
    ("whom", "times", "outcomes"),
    [
        ("runner", 1, {"passed": 15, "failed": 3}),
        ("supervisor", 1, {"passed": 18}),
        ("supervisor", 9, {"passed": 15, "failed": 3}),
    ],
)
def test_processes_are_killed(
    whom: str, times: int, outcomes: dict[str, int], number: int, pytester: pytest.Pytester
) -> None:
    up = ["runner", "", "supervisor"].index(whom)
    modules(pytester, 3, KILLS.replace("TIMES", str(times)).replace("UP", str(up)))
    result = run(pytester, "--remote=local:cpu:3", f"--remote-workers={number}", "--remote-fresh")
    result.assert_outcomes(**outcomes)
    assert result.ret == ("failed" in outcomes)
    ran = {path.name: path.read_text() for path in pytester.path.glob("ran-*.txt")}
    assert len(ran) == 18
    suspects = {f"ran-m{at}-2.txt" for at in range(3)}
    assert all(text == "x" for name, text in ran.items() if name not in suspects), ran
    assert {len(ran[name]) for name in suspects} == {min(times + 1, 2) if up else 1}


FAILS = """
    import time
    import pytest
    pytestmark = pytest.mark.gpu

    def together():
        TOGETHER

    @pytest.mark.parametrize("n", range(8))
    def test_it(n):
        with open("began.txt", "a") as file:
            file.write(f"NAME-{n} ")
        if n == 0:
            together()
        time.sleep(0.2)
        assert n != 1
""".replace("        TOGETHER", TOGETHER.replace("FILE", "began.txt"))


@pytest.mark.parametrize("option", ["-x", "--maxfail=2"])
def test_x_lets_only_those_end_that_run(option: str, pytester: pytest.Pytester) -> None:
    modules(pytester, 2, FAILS)
    most = 1 if option == "-x" else 2
    result = run(pytester, CPU, TWO, option)
    found = result.parseoutcomes()
    assert most <= found["failed"] <= most + 1, said(result)
    assert result.ret == 1
    assert f"stopping after {found['failed']} failures" in said(result) or most < found["failed"]
    began = lines(pytester, "began.txt")
    assert len(began) < 10, began


def test_ctrl_c_ends_them_all(pytester: pytest.Pytester) -> None:
    modules(pytester, 2, LONG.replace('"has-begun"', '"has-begun-NAME"'))
    with Started(pytester, CPU, TWO) as started:
        until(lambda: len(list(pytester.path.glob("has-begun-*"))) == 2)
        started.process.send_signal(signal.SIGINT)
        assert started.end() == 2
        assert "2 passed" in started.text
    assert Path(pytester.path, "torn-down").exists()


def test_the_run_limit_ends_them_all(pytester: pytest.Pytester) -> None:
    modules(pytester, 2, LONG)
    result = run(pytester, CPU, TWO, "--remote-run-timeout=6")
    result.assert_outcomes(passed=2, failed=2, errors=2)
    assert "the run limit of 6 s (--remote-run-timeout) is reached" in said(result)


def test_a_worker_that_lies_at_the_run_limit(stage: Stage) -> None:
    """What it had, and nobody goes on with, is an error for each of these tests."""

    def lies_at_the_end(far: Far) -> None:
        run_ = starts(far)
        if run_ is None:
            return
        far.say(events.Started(run_.first))
        while not isinstance(far.message(), orders.Stop):
            pass
        far.say(events.Started(run_.first))

    began = time.monotonic()
    played = stage.run(lies_at_the_end, args=(TWO, "--remote-run-timeout=1"))
    assert played.verdicts() == ["failed"] * 3
    assert played.ret == 1
    assert time.monotonic() - began < fakes.PATIENCE


def test_xdist_and_this_do_not_go_together(pytester: pytest.Pytester) -> None:
    modules(pytester, 1)
    result = run(pytester, CPU, TWO, "-n2")
    assert result.ret == 4
    assert "--remote-workers=2 and -n do not go together" in said(result)


@pytest.mark.parametrize("text", ["0", "x", "-3"])
def test_no_number(text: str, pytester: pytest.Pytester) -> None:
    result = run(pytester, CPU, f"--remote-workers={text}")
    assert result.ret == 4
    assert f"--remote-workers='{text}' is no number of workers" in said(result)


def test_two_shapes_share_the_host(pytester: pytest.Pytester) -> None:
    """No more GPUs are in use at once than there are."""
    source = MODULE.replace("time.sleep(0.05)", 'time.sleep(0.05); note("both.txt")')
    modules(pytester, 2, source)
    modules_ = pytester.path / "test_m1.py"
    modules_.write_text(modules_.read_text().replace("mark.gpu\n", "mark.gpu(2)\n"))
    result = run(pytester, CPU, "--remote-workers=3")
    result.assert_outcomes(passed=8)
    text = said(result)
    assert "2 GPUs   1 worker   4 tests" in text
    assert "1 GPU   2 workers   4 tests" in text or "1 GPU   1 worker   4 tests" in text
