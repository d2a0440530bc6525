"""Modal's table of GPU types: what it holds, and how a name is found in it."""

from __future__ import annotations

import datetime as dt

import pytest

from pytest_remotegpu.backends.modal import table


def test_each_type_is_found_by_its_name_and_its_aliases() -> None:
    assert [table.find(name) for name in table.TYPES] == list(table.TYPES.values())
    assert [table.find(name.lower()) for name in table.TYPES] == list(table.TYPES.values())
    assert {alias: table.find(alias) for alias in table.ALIASES} == {
        "A10G": table.TYPES["A10"],
        "A100": table.TYPES["A100-40GB"],
    }


@pytest.mark.parametrize("name", ["", "H1000", "A100:2", "A100,H100", "T4!", "NVIDIA T4"])
def test_what_is_no_type_is_not_found(name: str) -> None:
    assert table.find(name) is None
    assert table.usd_per_hour(name) is None


def test_values_are_such_as_cards_have() -> None:
    for row in table.TYPES.values():
        assert 16 <= row.memory_gib <= 192
        assert 7.5 <= row.capability <= 12.0
        assert row.most == (4 if row.name == "A10" else 8)
        assert row.usd_per_second is not None
        assert 0.0001 < row.usd_per_second < 0.01


def test_a_price_is_for_all_cards_of_a_container_and_an_hour() -> None:
    assert table.usd_per_hour("T4") == pytest.approx(0.5904)
    assert table.usd_per_hour("H100", 8) == pytest.approx(31.5936)
    assert table.usd_per_hour("H100!") == table.usd_per_hour("H100")


def test_prices_have_a_date_and_a_source() -> None:
    assert dt.date.fromisoformat(table.DATE) > dt.date(2026, 1, 1)
    assert table.SOURCE.startswith("https://modal.com/pricing")
