"""What a workspace pays: read from what the service says, and kept from run to run."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.backends.modal import rates, table

DAY = dt.date(2026, 11, 28)
TOLD = {  # the names and the unit are the service's
    "cpu_hour_cost": "0.04730",
    "cpu_hour_cost_sandbox": "0.141900",
    "gpu_hour_cost_a100_40gb": "2.10000",
    "gpu_hour_cost_a100_80gb": "2.50000",
    "gpu_hour_cost_a10g": "1.10000",
    "gpu_hour_cost_b200": "6.25000",
    "gpu_hour_cost_b300": "7.10000",
    "gpu_hour_cost_h100": "3.95000",
    "gpu_hour_cost_h200": "4.54000",
    "gpu_hour_cost_l4": "0.80000",
    "gpu_hour_cost_l40s": "1.95000",
    "gpu_hour_cost_rtx6000": "3.03000",
    "gpu_hour_cost_t4": "0.59000",
    "mem_gib_hour_cost": "0.00800",
    "volume_storage_gib_month_cost": "0.09000",
}


def test_each_type_has_its_rate() -> None:
    found = rates.read(TOLD, "team", DAY)
    assert found.usd.keys() == table.TYPES.keys()
    for name, usd in found.usd.items():
        assert usd == pytest.approx(table.usd_per_hour(name), rel=0.02)
    assert (found.date, found.source) == ("2026-11-28", "rates of Modal workspace team")
    assert rates.read({}, "", DAY).usd == {}


@pytest.mark.parametrize(
    "usd", ["", "free", "nan", "inf", "-0.59", "0", "0.000164", "590", None, [], "0.59 USD"]
)
def test_what_can_be_no_price_of_an_hour_is_left_out(usd: Any) -> None:
    found = rates.read({**TOLD, "gpu_hour_cost_t4": usd}, "team", DAY)
    assert found.usd.keys() == table.TYPES.keys() - {"T4"}


@given(st.dictionaries(st.text(), st.one_of(st.none(), st.text(), st.floats(), st.integers())))
def test_whatever_the_service_says_is_read(told: dict[str, Any]) -> None:
    names = {f"gpu_hour_cost_{name}": usd for name, usd in told.items()}
    assert rates.read({**told, **names}, "", DAY).usd.keys() <= table.TYPES.keys()


def test_prices_by_rates() -> None:
    found = rates.read({"gpu_hour_cost_t4": "0.40"}, "team", DAY)
    mine = table.price(["T4"], 2, {}, listed=found)
    assert mine is not None
    assert (mine.usd_per_hour, mine.date, mine.source) == (0.8, found.date, found.source)
    other = table.price(["L4"], 1, {}, listed=found)
    assert other is not None
    assert other.date == table.DATE
    said = table.price(["T4"], 1, {"t4": 3.0}, listed=found)
    assert said is not None
    assert (said.usd_per_hour, said.source) == (3.0, "ini file, remotegpu_prices")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    config = tmp_path / "modal.toml"
    config.touch()
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "MODAL_CONFIG_PATH": str(config)}


def test_rates_are_kept_for_a_month(environ: dict[str, str]) -> None:
    assert rates.known(environ, DAY) is None
    found = rates.read(TOLD, "team", DAY)
    rates.keep(environ, rates.read({}, "team", DAY))
    assert rates.known(environ, DAY) is None
    rates.keep(environ, found)
    assert rates.known(environ, DAY) == found
    assert rates.known(environ, DAY + dt.timedelta(30)) == found
    assert rates.known(environ, DAY + dt.timedelta(31)) is None
    assert rates.known(environ, DAY - dt.timedelta(1)) is None
    assert rates.due(None, DAY)
    assert not rates.due(found, DAY)
    assert rates.due(found, DAY + dt.timedelta(1))
    (file,) = Path(environ["XDG_CACHE_HOME"]).rglob("*.json")
    for text in ("", "[]", "{}", '{"workspace": 1, "date": "x", "usd": {}}', "\0"):
        file.write_text(text)
        assert rates.known(environ, DAY) is None
    data = {"workspace": "", "date": "2026-11-28", "usd": {"T4": 0.000001}}
    file.write_text(json.dumps(data))
    assert rates.known(environ, DAY) is None


def test_another_workspace_has_rates_of_its_own(environ: dict[str, str]) -> None:
    rates.keep(environ, rates.read(TOLD, "team", DAY))
    for name in ("MODAL_PROFILE", "MODAL_TOKEN_ID", "MODAL_SERVER_URL"):
        assert rates.known({**environ, name: "other"}, DAY) is None
    os.utime(environ["MODAL_CONFIG_PATH"], (0, 0))  # another profile was made the active one
    assert rates.known(environ, DAY) is None


def test_no_place_to_keep_them(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    rates.keep(environ, rates.read(TOLD, "team", DAY))
    assert rates.known(environ, DAY) is None
