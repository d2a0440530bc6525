"""How a card does and what it may do at most, as NVIDIA's library tells it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cardfile
from cardfile import fake_card
from pytest_remotegpu import cards
from pytest_remotegpu.cards import Limits, Reading

Host = Callable[..., None]
BUSY: dict[str, Any] = {
    "sm_mhz": 1755,
    "memory_mhz": 3200,
    "most_sm_mhz": 1980,
    "most_memory_mhz": 3201,
    "set_sm_mhz": 1900,
    "milliwatts": 412_345,
    "most_milliwatts": 700_000,
    "celsius": 61,
    "reasons": 0x4 | 0x40 | 0x1 | 0x2,
    "bus_bits": 6144,
}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Give this process the cards that are handed to the fixture's value."""
    path = tmp_path / "cards.json"
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.syspath_prepend(cardfile.STANDIN)
    monkeypatch.setenv("FAKE_NVML", str(path))
    yield lambda *present, **more: cardfile.write_cards(path, present, **more)
    sys.modules.pop("pynvml", None)


def test_a_card_is_looked_at(host: Host) -> None:
    """Idling, and clocks that somebody has set, are not what holds it back."""
    host(fake_card(1), fake_card(2, **BUSY))
    uuid = fake_card(2)["uuid"]
    assert cards.reading(uuid) == Reading(
        1755, 3200, 412.345, 61, ("power cap", "hardware thermal slowdown")
    )
    assert cards.limits(uuid) == Limits(1980, 3201, 1900, 700.0, 6144)


def test_a_card_need_not_tell_everything(host: Host) -> None:
    host(fake_card(1, **{**BUSY, "milliwatts": None, "reasons": None, "bus_bits": None}))
    uuid = fake_card(1)["uuid"]
    assert cards.reading(uuid) == Reading(1755, 3200, None, 61, None)
    assert cards.limits(uuid) == Limits(1980, 3201, 1900, 700.0, None)


@pytest.mark.parametrize("uuid", ["", "GPU-", "GPU-00000009-0000-4000-8000-000000000009"])
def test_nothing_is_told_of_a_card_that_is_not_there(host: Host, uuid: str) -> None:
    host(fake_card(1, **BUSY))
    assert (cards.reading(uuid), cards.limits(uuid)) == (Reading(), Limits())
    host(broken="Driver/library version mismatch")
    assert (cards.reading(uuid), cards.limits(uuid)) == (Reading(), Limits())


def test_the_reasons_are_the_librarys() -> None:
    sys.modules.pop("pynvml", None)  # a stand-in, where another test has left one
    real = pytest.importorskip("pynvml")
    assert {word: bit for bit, word in cards.REASONS.items()} == {
        "power cap": real.nvmlClocksThrottleReasonSwPowerCap,
        "hardware slowdown": real.nvmlClocksThrottleReasonHwSlowdown,
        "sync boost": real.nvmlClocksThrottleReasonSyncBoost,
        "thermal slowdown": real.nvmlClocksThrottleReasonSwThermalSlowdown,
        "hardware thermal slowdown": real.nvmlClocksThrottleReasonHwThermalSlowdown,
        "hardware power brake": real.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
    }
