"""The timer of cards, on one that is not there: what is in a time, and what is not."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from bench.cards_of_ours import LAUNCH, Card, torch_of
from pytest_remotegpu.bench.cuda import LEAST_FLUSH, MOST_CALLS, CudaTimer
from pytest_remotegpu.bench.timing import Budget, CaptureError, Mode, Rotating, measure
from pytest_remotegpu.errors import UsageError

BUDGET = Budget(3, 7)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    """Give a card that this process's torch drives."""
    made = Card()
    monkeypatch.setitem(sys.modules, "torch", torch_of(made))
    yield made
    assert made.capturing is None


def test_the_flush_is_in_no_time(card: Card) -> None:
    timer = CudaTimer(clock=card.clock)
    calls = {"a": card.kernel(1e-3), "b": card.kernel(2e-3)}
    found = measure(calls, timer, mode=Mode.EAGER, budget=BUDGET)
    assert found["a"] == pytest.approx([1.0] * 7)
    assert found["b"] == pytest.approx([2.0] * 7)
    assert card.flushes == 2 * (3 + 7)


def test_a_warm_call_does_not_wait_for_its_host(card: Card) -> None:
    """Beside a card that idles, the host's events would be in the time."""
    timer = CudaTimer(flush=False, clock=card.clock)
    call = card.kernel(2e-6, host=20e-6)
    assert timer.spans([call], 5) == [pytest.approx([0.002] * 5)]


def test_without_a_flush_the_cache_stays_warm(card: Card) -> None:
    call = card.kernel(1e-3, cold=1e-3)
    for flush, ms in (True, 2.0), (False, 1.0):
        timer = CudaTimer(flush=flush, clock=card.clock)
        found = measure({"a": call}, timer, mode=Mode.EAGER, budget=BUDGET)
        assert found["a"] == pytest.approx([ms] * 7)


def test_rounds_are_queued_before_one_wait(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait in each repetition would leave the card idle in it."""
    timer = CudaTimer(flush=False, clock=card.clock)
    waits: list[float] = []
    real = card.wait

    def wait() -> None:
        waits.append(card.now)
        real()

    monkeypatch.setattr(card, "wait", wait)
    timer.spans([card.kernel(1e-3)], 50)
    assert len(waits) == 2


def test_a_call_takes_as_long_as_its_host_does(card: Card) -> None:
    """The card is busy with the flush while the host issues the call, which must not hide it."""
    timer = CudaTimer(clock=card.clock)
    call = card.kernel(2e-6, host=20e-6)
    assert 1e6 * LEAST_FLUSH / 4e12 > 25  # microseconds; it would
    found = measure({"a": call}, timer, mode=Mode.EAGER, budget=BUDGET)
    assert found["a"] == pytest.approx([(20e-6 + LAUNCH) * 1000] * 7)
    assert timer.issue([call], 3) == [pytest.approx([(20e-6 + LAUNCH) * 1000] * 3)]


def test_a_graph_has_the_cards_time_alone(card: Card) -> None:
    timer = CudaTimer(clock=card.clock)
    calls = {"small": card.kernel(2e-6, host=20e-6), "large": card.kernel(10e-3)}
    found = measure(calls, timer, mode=Mode.GRAPH, budget=BUDGET)
    assert found["small"] == pytest.approx([0.002] * 7)
    assert found["large"] == pytest.approx([10.0] * 7)


def test_a_graph_finds_a_warm_cache(card: Card) -> None:
    call = card.kernel(10e-3, cold=1e-3)
    found = measure({"a": call}, CudaTimer(clock=card.clock), mode=Mode.GRAPH, budget=BUDGET)
    assert found["a"] == pytest.approx([10.0] * 7)


@pytest.mark.parametrize(
    ("seconds", "calls"), [(1e-9, MOST_CALLS), (10e-6, 400), (1e-3, 4), (3e-3, 1), (1.0, 1)]
)
def test_a_replay_is_long_beside_its_start(card: Card, seconds: float, calls: int) -> None:
    timer = CudaTimer(flush=False, clock=card.clock)
    ready = timer.prepare(card.kernel(seconds), Mode.GRAPH)
    before = card.until = card.now
    ready()
    assert card.until - before - LAUNCH == pytest.approx(calls * seconds, abs=1e-12)


@pytest.mark.parametrize("copies", [1, 3, 7])
def test_all_copies_are_in_a_graph_equally_often(card: Card, copies: int) -> None:
    timer = CudaTimer(flush=False, clock=card.clock)
    call = Rotating([card.kernel(1e-3, name=str(n)) for n in range(copies)])
    timer.prepare(call, Mode.GRAPH)
    card.log.clear()
    timer.prepare(call, Mode.GRAPH)
    captured = card.log[max(3, copies) + 5 :]  # after the warm-up and the estimate
    assert {captured.count(str(n)) for n in range(copies)} == {max(1, round(4 / copies))}


@pytest.mark.parametrize(
    ("waits", "reason"),
    [
        ("item", "called a synchronizing CUDA operation"),
        ("wait", "operation not permitted when stream is capturing"),
    ],
)
def test_what_waits_can_not_be_captured(card: Card, waits: str, reason: str) -> None:
    calls = {"good": card.kernel(1e-3), "bad": card.kernel(1e-3, waits=waits)}
    timer = CudaTimer(clock=card.clock)
    with pytest.raises(CaptureError) as caught:
        measure(calls, timer, mode=Mode.GRAPH, budget=BUDGET)
    assert str(caught.value) == (
        f"bad: it can't be captured as a CUDA graph: RuntimeError: {reason}; time it eagerly, or "
        "take waits, copies to the host and changing shapes out of it"
    )
    assert caught.value.contestant == "bad"
    assert card.healthy  # else the next who draws a random number would get an error
    assert card.sync == 0


def test_what_does_nothing_can_not_be_captured(card: Card) -> None:
    del card
    with pytest.raises(CaptureError, match=r"a: it can't be .*: it does nothing on the card"):
        measure({"a": lambda: None}, CudaTimer(), mode=Mode.GRAPH, budget=BUDGET)


def test_a_graph_has_to_be_prepared(card: Card) -> None:
    timer = CudaTimer()
    with pytest.raises(UsageError, match="is not captured; let prepare"):
        timer.rounds([card.kernel(1e-3)], 5, Mode.GRAPH)


def test_a_cpu_is_no_card(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="cpu is no CUDA device; use WallTimer on a CPU"):
        CudaTimer("cpu")
    torch = torch_of(card)
    torch.cuda.is_available = lambda: False
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(UsageError, match="torch sees no CUDA card"):
        CudaTimer()


def test_the_device_is_the_one_that_is_named(card: Card) -> None:
    del card
    assert str(CudaTimer().device) == "cuda:0"
    assert str(CudaTimer("cuda:1").device) == "cuda:1"
