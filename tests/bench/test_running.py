"""A whole benchmark on a card that is not there: modes, throttling, light, what is said of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cardfile
from bench.cards_of_ours import LAUNCH, Card, torch_of
from bench.timers import Clock, Work
from cardfile import fake_card
from pytest_remotegpu.bench import ceilings, running
from pytest_remotegpu.bench.ceilings import Ceilings
from pytest_remotegpu.bench.contestants import Inputs
from pytest_remotegpu.bench.measured import Result
from pytest_remotegpu.bench.running import FasterThanLightError, Plan, run
from pytest_remotegpu.bench.timing import Budget, CaptureError, Mode
from pytest_remotegpu.errors import UsageError

BUDGET = Budget(2, 6)
UUID = fake_card(1)["uuid"]
TOPS = Ceilings(4e12, "copy", 8e14, "bfloat16", 4.8e12, 1e15)
Does = Callable[..., None]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    """Give a card that this process's torch drives, with known ceilings."""
    made = Card()
    torch = torch_of(made, uuid=UUID.removeprefix("GPU-"))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(ceilings, "of_card", lambda *_args: TOPS)
    return made


@pytest.fixture
def does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Does]:
    """Give a function that says how the card does from now on."""
    path = tmp_path / "cards.json"
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.syspath_prepend(cardfile.STANDIN)
    monkeypatch.setenv("FAKE_NVML", str(path))
    usual = {"sm_mhz": 1980, "memory_mhz": 3201, "milliwatts": 300_000, "celsius": 50}
    usual |= {"most_sm_mhz": 1980, "most_milliwatts": 700_000}

    def does(reasons: int = 0, **more: Any) -> None:
        one = fake_card(1, reasons=reasons, **{**usual, **more})
        cardfile.write_cards(path, [one], driver="580.1")

    does()
    yield does
    sys.modules.pop("pynvml", None)


def timed(card: Card, functions: dict[str, Callable[[], object]], **more: Any) -> Result:
    plan = Plan(functions, Inputs(), budget=BUDGET, **more)
    return run(plan, torch_device(), clock=card.clock)


def torch_device() -> Any:
    return sys.modules["torch"].device("cuda", 0)


def test_both_modes_are_beside_each_other(card: Card, does: Does) -> None:
    del does
    result = timed(card, {"new": card.kernel(2e-6, host=20e-6), "reference": card.kernel(50e-6)})
    new, reference = result.entrants.values()
    assert result.ms("new", mode="eager").mid == pytest.approx((20e-6 + LAUNCH) * 1000)
    assert result.ms("new", mode="graph").mid == pytest.approx(0.002)
    assert new.host == pytest.approx((20e-6 + LAUNCH) * 1000)
    assert (new.bound(), reference.bound()) == ("host-bound", "device-bound")
    # each of them says something else
    assert result.faster_than("reference", by=1.9)
    assert not result.faster_than("reference", by=2.1)
    assert result.faster_than("reference", by=24, mode="graph")
    assert result.l2 == {Mode.EAGER: "cold", Mode.GRAPH: "warm"}
    assert (result.valid, result.notes) == (True, ())


def test_the_environment_and_the_state_are_told(card: Card, does: Does) -> None:
    does(0x4)
    data = timed(card, {"a": card.kernel(1e-3)}, dtype="bfloat16").plain()
    environment = data["environment"]
    assert environment["device"] == "NVIDIA X1"
    assert environment["uuid"] == UUID
    assert environment["driver"] == "580.1"
    assert (environment["torch"], environment["cuda"]) == ("2.11.0", "13.0")
    assert environment["dtype"] == "bfloat16"
    assert environment["clock"] == {"most_sm_mhz": 1980, "set_sm_mhz": None, "most_watts": 700.0}
    assert data["state"]["after"]["sm_mhz"] == 1980
    assert data["state"]["after"]["celsius"] == 50
    assert data["state"]["held_back"] == ["power cap"]
    assert data["notes"] == ["the card was held back by power cap"]
    assert data["valid"]


def test_what_was_slowed_down_is_timed_again(card: Card, does: Does) -> None:
    """Once; then all is well."""
    calls, in_a_pass = 0, 1 + 2 * (2 + 6) + running.HOST_ROUNDS
    kernel = card.kernel(1e-3)

    def call() -> None:
        nonlocal calls
        calls += 1
        card.now += 5.0 if calls == 1 else 0.0
        does(0x20 if calls <= in_a_pass else 0)
        kernel()

    result = timed(card, {"a": call}, modes=(Mode.EAGER,))
    assert result.valid
    assert result.notes == ("timed twice: at first the card was held back by thermal slowdown",)
    assert result.entrants["a"].times[Mode.EAGER] == pytest.approx([1.0] * 6)
    assert (
        result.entrants["a"].first > 5000
    )  # milliseconds; in the second pass it was not the first


def test_what_stays_slowed_down_is_not_valid(card: Card, does: Does) -> None:
    does(0x8 | 0x40)
    result = timed(card, {"a": card.kernel(1e-3)})
    assert not result.valid
    assert result.why == "the card was held back by hardware slowdown, hardware thermal slowdown"
    assert result.state["held_back"] == result.why.partition("by ")[2].split(", ")


def test_others_on_the_card_are_told(card: Card, does: Does) -> None:
    does(processes=[[os.getpid(), 1], [os.getppid(), 1]])
    result = timed(card, {"a": card.kernel(1e-3)})
    assert result.notes == ("another process used the card meanwhile",)
    assert result.valid


def test_of_what_can_not_be_captured_the_rest_is_timed(card: Card, does: Does) -> None:
    del does
    waits = card.kernel(1e-4, waits="item")
    result = timed(card, {"bad": waits, "good": card.kernel(1e-4), "worse": waits})
    assert list(result.entrants["bad"].times) == [Mode.EAGER]
    assert list(result.entrants["good"].times) == [Mode.EAGER, Mode.GRAPH]
    assert [note.partition(":")[0] for note in result.notes] == [
        "no graph of bad",
        "no graph of worse",
    ]
    assert "called a synchronizing" in result.entrants["worse"].uncaptured
    with pytest.raises(UsageError, match="was not timed in the mode 'graph': it can't be"):
        result.faster_than("good", mode="graph")


def test_a_graph_that_is_insisted_on_is_an_error(card: Card, does: Does) -> None:
    del does
    waits = card.kernel(1e-4, waits="item")
    with pytest.raises(CaptureError, match="bad: it can't be captured"):
        timed(card, {"bad": waits}, modes=(Mode.GRAPH,), insists=True)


def test_what_is_achieved_is_a_part_of_what_can_be(card: Card, does: Does) -> None:
    del does
    result = timed(
        card, {"a": card.kernel(1e-3)}, moved={"a": 2e9}, flops={"a": 4e11}, modes=(Mode.EAGER,)
    )
    rates = result.entrants["a"].rates[Mode.EAGER]
    assert rates["bytes"].value == pytest.approx(2e12)
    assert rates["bytes"].share == pytest.approx(0.5)
    assert rates["flops"].share == pytest.approx(0.5)
    assert (rates["bytes"].of, rates["flops"].of) == ("measured copy", "measured mm, bfloat16")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"flops": {"a": 1.06e12}}, r"a \(eager\) would do 1\.06e\+15 operation/s, and this"),
        ({"moved": {"a": 6e9}}, r"would do 5\.9e\+12 byte/s, and this card can do 4\.8e\+12"),
    ],
)
def test_nothing_is_faster_than_light(
    card: Card, does: Does, more: dict[str, Any], text: str
) -> None:
    del does
    with pytest.raises(FasterThanLightError, match=text):
        timed(card, {"a": card.kernel(1e-3)}, **more)


def test_what_the_cache_may_hold_is_no_light(card: Card, does: Does) -> None:
    """Twice the cache: what is read of it, and what stays in it of what is written."""
    del does
    moved = {"a": 2 * 50 * 2**20 + 4.8e9}
    result = timed(card, {"a": card.kernel(1e-3)}, moved=moved)
    assert result.valid
    assert [note.partition(":")[0] for note in result.notes] == [
        "a (eager) moves more than memory can"
    ]
    with pytest.raises(FasterThanLightError):
        timed(card, {"a": card.kernel(1e-3)}, moved={"a": moved["a"] * 1.06})


def test_on_a_cpu_it_is_the_clock_on_the_wall() -> None:
    clock = Clock()
    works = {"new": Work(clock, 0.002), "reference": Work(clock, 0.004)}
    plan = Plan(works, Inputs(), moved={"new": 2e6}, budget=BUDGET)
    result = run(plan, clock=clock)
    assert result.mode is Mode.WALL
    assert result.speedup("reference").mid == pytest.approx(2)
    assert result.entrants["new"].rates[Mode.WALL]["bytes"].value == pytest.approx(1e9)
    assert result.entrants["new"].rates[Mode.WALL]["bytes"].share is None
    assert result.entrants["new"].bound() == ""
    assert result.plain()["environment"]["device"] == "cpu"
    assert result.l2 == {}
