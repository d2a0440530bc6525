"""Containers that the service takes away: it sends SIGINT, and SIGKILL half a minute later."""

from __future__ import annotations

import time

import pytest

from loopback import LoopbackModal
from session.running import Started, run, until

T4 = "--remote=modal:T4"
HELD = """
    import pathlib, signal, time, pytest

    HERE = pathlib.Path({here!r})

    def note(name, text):
        with (HERE / name).open("a") as file:
            file.write(text + " ")

    @pytest.fixture(scope="module", autouse=True)
    def whole():
        yield
        note("torn-down", "x")

    @pytest.mark.gpu
    @pytest.mark.parametrize("number", range(4))
    def test_one(number, artifacts_dir):
        note("ran", str(number))
        (artifacts_dir / "kept.txt").write_text(f"{{number}}")
        times = (HERE / "ran").read_text().split().count("1")
        while number == 1 and times <= {times} and not (HERE / "go").exists():
            time.sleep(0.01)
"""
"""The second test is held: so many times that it begins, or until a file is there."""


def held(pytester: pytest.Pytester, times: int = 1) -> None:
    pytester.makepyfile(HELD.format(here=str(pytester.path), times=times))


def numbers(pytester: pytest.Pytester) -> list[int]:
    path = pytester.path / "ran"
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def preempt(pytester: pytest.Pytester, service: LoopbackModal, times: int) -> None:
    """Preempt each container in which the held test runs, once it does."""
    for number in range(times):
        assert until(lambda number=number: numbers(pytester).count(1) == number + 1)  # type: ignore[misc]
        [busy] = [each for each in service.running if each.current is not None]
        service.preempt(busy)


def kept(pytester: pytest.Pytester) -> list[str]:
    found = pytester.path.glob(".pytest_cache/d/remotegpu/artifacts/*/kept.txt")
    return sorted(path.read_text() for path in found)


def test_the_running_test_comes_to_its_end(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """Nothing is run twice, and the session there comes to its end as well."""
    held(pytester)
    with Started(pytester, T4) as session:
        preempt(pytester, service, 1)
        time.sleep(1)  # a notice takes a moment, in which nothing else may begin
        (pytester.path / "go").touch()
        assert session.end() == 0, session.text
        text = session.text
    assert "4 passed" in text, text
    assert numbers(pytester) == [0, 1, 2, 3]
    assert (pytester.path / "torn-down").read_text() == "x x "
    assert "was preempted: Modal has taken away (preempted) container ta-" in text, text
    assert [entry.retry_count for entry in service.inputs] == [0, 0]
    assert [len(each.inputs) for each in service.containers] == [1, 1]
    assert kept(pytester) == ["0", "1", "2", "3"]
    service.wait_until(lambda: len(service.running) == 1)  # the first one warms nothing up
    assert service.containers[0].exit == 0


@pytest.mark.parametrize(
    ("times", "passes", "service"),
    [(1, True, False), (1, True, True), (4, False, False)],
    ids=["once", "once, input-plane", "four times"],
    indirect=["service"],
)
@pytest.mark.timeout(180)
def test_the_running_test_does_not(
    pytester: pytest.Pytester, service: LoopbackModal, *, times: int, passes: bool
) -> None:
    """It is tried again with the others, three times; no failure is made of it."""
    service.limits.preempt_grace = 0.3
    held(pytester, times)
    with Started(pytester, T4) as session:
        preempt(pytester, service, times)
        assert session.end() == (not passes), session.text
        text = session.text
    begun = times if passes else times - 1
    assert numbers(pytester) == [0, *[1] * (begun + 1), *([2, 3] if passes else [])]
    assert "was preempted: " in text, text
    assert " failed" not in text, text
    assert ("4 passed" if passes else "1 passed, 3 errors") in text, text
    if not passes:
        assert "not run to its end, since its worker was preempted 4 times" in text
        assert "not run: workers were preempted, or lost while idle, 4 times in a row" in text
    assert len(service.calls) == begun + 1
    assert service.inputs[0].retry_count == 1


def test_before_the_first_test(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """Preempted once the call is claimed, and nothing has begun."""
    (pytester.path / "go").touch()
    held(pytester)
    service.faults.preempt(after="claim")
    result = run(pytester, T4)
    result.assert_outcomes(passed=4)
    assert numbers(pytester) == [0, 1, 2, 3]
    assert [entry.retry_count for entry in service.inputs] == [0] * len(service.calls)
    service.wait_until(lambda: service.containers[0].exit == 0)


def test_workers_side_by_side(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """What the one that goes has not begun is the other ones'."""
    held(pytester)
    pytester.makepyfile(test_other="import pytest\n\n@pytest.mark.gpu\ndef test_other(): pass\n")
    with Started(pytester, T4, "--remote-workers=2") as session:
        assert until(lambda: 1 in numbers(pytester))
        service.wait_until(lambda: sum(each.current is not None for each in service.running) == 1)
        preempt(pytester, service, 1)
        time.sleep(1)
        (pytester.path / "go").touch()
        assert session.end() == 0, session.text
        text = session.text
    assert "5 passed" in text, text
    assert sorted(numbers(pytester)) == [0, 1, 2, 3]
