"""What goes wrong at the service's end: which outcome it makes, whose fault it is, what is said."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from grpclib import Status
from modal_proto import api_pb2

from loopback import LoopbackModal
from session.running import Started, run, said

FAR = "--remote=modal:T4"
T4 = (FAR, "-o", "remotegpu_collect=here")
"""What most of these are about: tests are known, and then something goes wrong."""
FIVE = """
    import pathlib, time, pytest

    RAN = pathlib.Path({ran!r})

    @pytest.mark.gpu
    @pytest.mark.parametrize("number", range(5))
    def test_one(number):
        with RAN.open("a") as file:
            file.write(f"{{number}} ")
        time.sleep(0.5)  # so that each verdict travels by itself
"""


@pytest.fixture
def ran(pytester: pytest.Pytester) -> Path:
    """Give the file in which each test that runs leaves its number."""
    path = pytester.path / "ran.txt"
    pytester.makepyfile(FIVE.format(ran=str(path)))
    return path


def numbers(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()] if path.exists() else []


# containers that go


KILLS = """
    import os, pathlib, signal, pytest
    pytestmark = pytest.mark.gpu

    def test_kills():
        for pid in CONTAINER:
            os.kill(pid, signal.SIGKILL)

    @pytest.mark.parametrize("number", range(3))
    def test_after(number): pass

    def ancestors(pid):
        while pid > 1:
            yield pid
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
            pid = int(stat.rpartition(")")[2].split()[1])

    def command(pid):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text()

    FOUND = ancestors(os.getpid())
    CONTAINER = [pid for pid in FOUND if "modal._container_entrypoint" in command(pid)]
"""


@pytest.mark.timeout(180)
def test_a_test_takes_its_container_away_unheard(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """It is found guilty, and no other one suffers for it."""
    pytester.makepyfile(KILLS)
    with Started(pytester, *T4) as session:
        assert session.end(150) == 1, session.text
        text = session.text
    assert "1 failed, 3 passed" in text, text
    assert re.search(r"^FAILED .*::test_kills", text, re.MULTILINE), text
    assert re.search(r"^the worker was lost (twice|4 times) ", text, re.MULTILINE), text
    assert "1 crashed" in text, text
    assert "while idle" not in text, text
    assert len(service.containers) <= 4 + 1


@pytest.mark.parametrize("after", ["claim", 1, 3, 6])
def test_a_container_is_lost(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path, after: Any
) -> None:
    """Tests without a verdict run in another container; one that has its verdict runs once."""
    service.faults.lose(after=after)
    result = run(pytester, *T4)
    result.assert_outcomes(passed=5)
    assert result.ret == 0
    assert [entry.retry_count for entry in service.inputs] == [1, 0]
    assert len(service.containers) == 2
    runs = Counter(numbers(ran))  # what it runs between its loss and its end is run again elsewhere
    assert runs.keys() == set(range(5))
    assert set(runs.values()) <= {1, 2}
    assert "was lost: " in said(result)
    assert "preempted" not in said(result)


def test_a_container_is_lost_while_it_collects(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path
) -> None:
    """Another one collects, and then runs the tests, each once."""
    service.faults.lose(after="claim")
    result = run(pytester, FAR)
    result.assert_outcomes(passed=5)
    assert result.ret == 0
    assert sorted(numbers(ran)) == list(range(5))
    assert "was lost while it collected: " in said(result)


@pytest.mark.parametrize("blow", ["lose", "preempt"])
def test_a_container_goes_before_it_begins(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path, blow: str
) -> None:
    """The service hands the call to another one, and nobody has to know."""
    getattr(service.faults, blow)(after=0)
    result = run(pytester, *T4)
    result.assert_outcomes(passed=5)
    assert result.ret == 0
    assert sorted(numbers(ran)) == list(range(5))
    assert "lost" not in said(result)
    assert "preempted" not in said(result)
    assert len(service.calls) == 1
    assert len(service.containers) == 2


@pytest.mark.timeout(150)
@pytest.mark.parametrize("after", [0, "claim"])
def test_containers_go_again_and_again(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path, after: Any
) -> None:
    """A bounded number of times, with longer and longer waits; then each test is an error."""
    service.faults.lose(after=after, times=50)
    service.limits.crashes_of_input = 2  # a container takes long to start on a busy machine
    result = pytester.runpytest_subprocess(*T4, timeout=120)
    assert result.ret == 1
    result.assert_outcomes(errors=5)
    assert numbers(ran) == []
    assert len(service.calls) <= 5


class Once(set[int]):
    """Holds a number the first time that it is asked for."""

    def __contains__(self, number: object) -> bool:
        found = super().__contains__(number)
        self.discard(number)
        return found


@pytest.mark.parametrize("what", ["dropped", "doubled"])
@pytest.mark.usefixtures("ran")
def test_the_stream_has_a_fault(
    pytester: pytest.Pytester, service: LoopbackModal, what: str
) -> None:
    setattr(service.faults, what, Once({3}))
    result = run(pytester, *T4)
    result.assert_outcomes(passed=5)
    text = said(result)
    assert ("chunk 4 came where 3 was due" in text) == (what == "dropped"), text


def test_no_further_container_that_would_cost_more_than_was_said(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path
) -> None:
    """The first one is left alone, and stays for a minute; another one would do so as well."""
    service.faults.dropped = Once({3})
    result = run(pytester, *T4, "--remote-run-timeout=30", "-rE")
    text = said(result)
    assert len(service.calls) == 1
    assert result.ret == 1
    found = result.parseoutcomes()
    assert found["errors"] + found.get("passed", 0) == 5
    reason = r"not run: the \$\S+ are reached that this run was said to cost at most: machines of"
    assert re.search(reason, text), text
    assert re.search(r"apart from outcomes of their own: \d not run for a limit of the run", text)
    assert len(numbers(ran)) < 5 or found.get("passed", 0) < 5


@pytest.mark.usefixtures("ran")
def test_the_stream_breaks_and_goes_on(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    service.faults.cuts += [2, 4]
    result = run(pytester, *T4)
    result.assert_outcomes(passed=5)
    assert len(service.calls) == 1


def test_a_call_is_delivered_twice(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path
) -> None:
    """The second container does not begin; nothing runs twice."""
    service.faults.twice = 1
    result = run(pytester, *T4)
    result.assert_outcomes(passed=5)
    assert sorted(numbers(ran)) == list(range(5))


# a container that lies


@pytest.mark.usefixtures("ran")
def test_a_pickle_as_a_chunk(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    proof = pytester.path / "owned"

    def tamper(chunk: Any) -> Any:
        data = pickle.dumps(Touch(str(proof)))
        return api_pb2.DataChunk(
            index=chunk.index, data=data, data_format=api_pb2.DATA_FORMAT_PICKLE
        )

    service.faults.tamper_chunk = tamper
    result = run(pytester, *T4)
    assert result.ret == 1
    result.assert_outcomes(errors=5)
    assert "refused: a container sent DATA_FORMAT_PICKLE" in said(result)
    assert not proof.exists()


@pytest.mark.usefixtures("ran")
def test_a_pickle_as_an_exception(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    proof = pytester.path / "owned"

    def tamper(output: Any) -> Any:
        output.result.status = api_pb2.GenericResult.GENERIC_STATUS_FAILURE
        output.result.data = pickle.dumps(Touch(str(proof)))
        output.data_format = api_pb2.DATA_FORMAT_PICKLE
        return output

    service.faults.tamper_output = tamper
    result = run(pytester, *T4)
    assert result.ret == 1
    assert not proof.exists()


class Touch:
    """Opened as a pickle it leaves a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


# before anything runs


def bad_token(service: LoopbackModal) -> None:
    service.faults.token = ("ak-other", "as-other")


def old_client(service: LoopbackModal) -> None:
    service.faults.client_too_old()


def forbidden(service: LoopbackModal) -> None:
    service.faults.refuse("AppCreate", Status.PERMISSION_DENIED, "no", times=None)


def no_payment(service: LoopbackModal) -> None:
    service.faults.no_payment_method()


def build_failure(service: LoopbackModal) -> None:
    service.faults.build_failure = "ninja: build stopped: subcommand failed."


def quota(service: LoopbackModal) -> None:
    service.faults.quota()


def time_out(service: LoopbackModal) -> None:
    service.faults.fail_inputs("TIMEOUT", "it took too long")


def no_card(service: LoopbackModal) -> None:
    service.faults.no_capacity = {"T4"}


def down(service: LoopbackModal) -> None:
    service.down()


@pytest.mark.parametrize("far", [False, True], ids=["known", "to-collect"])
@pytest.mark.parametrize(
    ("harm", "status", "words"),
    [
        (bad_token, 4, "Modal does not take this token.*modal token new"),
        (old_client, 4, "pip install --upgrade modal"),
        (forbidden, 4, "this token may not do that"),
        (build_failure, 1, "ninja: build stopped"),
        (quota, 1, "quota or a rate is exhausted"),
        (time_out, 1, "raise --remote-run-timeout"),
        (
            no_card,
            1,
            "no container with T4 has started within 2 s .--remote-wait.*all 8 containers",
        ),
        (down, 1, "can't be reached within 3 s"),
    ],
)
def test_no_test_can_run(
    far: bool,
    pytester: pytest.Pytester,
    service: LoopbackModal,
    ran: Path,
    harm: Callable[[LoopbackModal], None],
    status: int,
    words: str,
) -> None:
    harm(service)
    result = run(pytester, *((FAR,) if far else T4), "--remote-wait=2")
    text = said(result)
    assert re.search(words, text), text
    assert result.ret == (status if status == 4 or not far else 2), text
    if status == 1:
        result.assert_outcomes(errors=1 if far else 5)  # a file that nobody could collect
    assert numbers(ran) == []
    if harm is down:
        service.up()


@pytest.mark.usefixtures("ran")
def test_no_token(
    pytester: pytest.Pytester, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MODAL_TOKEN_ID")
    monkeypatch.delenv("MODAL_TOKEN_SECRET")
    result = run(pytester, *T4)
    assert result.ret == 4
    assert "modal token new" in said(result)
    assert service.count("FunctionCreate") == 0


@pytest.mark.parametrize("args", [(), ("-n1",)], ids=["alone", "xdist"])
@pytest.mark.parametrize("harm", [no_payment, forbidden])
@pytest.mark.usefixtures("ran")
def test_what_is_refused_after_a_test_has_run(
    pytester: pytest.Pytester,
    service: LoopbackModal,
    harm: Callable[[LoopbackModal], None],
    args: tuple[str, ...],
) -> None:
    """What has run is not thrown away; the others have one error each, and nothing else has."""
    if args:
        pytest.importorskip("xdist")
    pytester.makepyfile(test_a_here="def test_here(): pass")
    harm(service)
    result = run(pytester, *T4, *args)
    assert result.ret == 1, said(result)
    found = result.parseoutcomes()
    assert found["passed"] == 1
    assert found["errors"] == 5 + len(args)
    assert "far collection" not in said(result)


@pytest.mark.usefixtures("ran")
def test_a_card_that_there_is_not(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    result = run(pytester, "--remote=modal:A1000")
    assert result.ret == 4
    assert "did you mean A100" in said(result)
    assert service.requests == []


@pytest.mark.parametrize("args", [T4, (FAR,), (FAR, "-m", "gpu")], ids=["known", "far", "marked"])
def test_flash_attention_on_a_card_that_is_too_old(
    args: tuple[str, ...], pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.mkpydir("flash_attn")
    pytester.makepyfile("""
        import flash_attn
        import pytest

        @pytest.mark.gpu
        def test_one(): pass
    """)
    result = run(pytester, *args)
    assert result.ret == 4
    text = said(result)
    assert "imports flash_attn" in text
    assert "what does: --remote=modal:" in text
    assert service.calls == []
    run(pytester, "--remote=modal:L4").assert_outcomes(passed=1)


@pytest.mark.usefixtures("ran")
def test_stopped_from_outside(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    service.faults.fail_inputs("TERMINATED", "")
    result = run(pytester, *T4)
    assert result.ret == 1
    result.assert_outcomes(errors=5)
    assert "ended without an answer" in said(result)
