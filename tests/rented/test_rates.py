"""The workspace's own rates: what prices are from, in the summary and in the record."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from grpclib import Status

from loopback import LoopbackModal
from pytest_remotegpu.backends.modal import table
from session.running import run, said

T4 = "--remote=modal:T4"
ASKED = "WorkspaceBillingRates"
TABLE = table.DATE


@pytest.fixture(autouse=True)
def _project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_one(): pass
    """)


def session(pytester: pytest.Pytester, *more: str) -> tuple[str, str, dict[str, Any]]:
    """Run one; give what it says before and after of its cost, and the price in its record."""
    result = run(pytester, T4, "--remote-json=run.json", *more)
    result.assert_outcomes(passed=1)
    text = said(result)
    before = re.search("remote: cost: (.*)", text)
    after = re.search("\ncost: (.*)", text)
    assert before is not None
    assert after is not None
    (worker,) = json.loads((pytester.path / "run.json").read_text())["workers"]
    return before[1], after[1], worker["price"]


def test_rates_are_asked_for_once_a_day(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """The first session's bill is by them already; from then on the worst case is, too."""
    service.rates.update({"gpu_hour_cost_t4": "0.77000", "cpu_hour_cost": "0.04"})
    _, after, price = session(pytester)
    whose = "rates of Modal workspace loopback"
    assert re.search(rf"by prices of \d{{4}}-\d\d-\d\d \({whose}\)", after), after
    assert (price["usd_per_hour"], price["source"]) == (0.77, whose)
    assert price["date"] > TABLE
    before, after, price = session(pytester)
    assert "$0.770 an hour" in before
    assert whose in after
    assert service.count(ASKED) == 1
    planned = said(run(pytester, T4, "--remote-plan"))
    assert "$0.770 an hour" in planned
    before, after, price = session(pytester, "-o", "remotegpu_prices=T4 = 3.00")
    assert "$3.00 an hour" in before
    assert after.endswith("by prices (ini file, remotegpu_prices)")
    assert price["usd_per_hour"] == 3.0
    assert service.count(ASKED) == 1


@pytest.mark.parametrize("harm", ["refused", "late", "of another unit"])
def test_what_can_not_be_asked_changes_nothing(
    pytester: pytest.Pytester, service: LoopbackModal, harm: str
) -> None:
    service.rates["gpu_hour_cost_t4"] = "0.77"
    if harm == "refused":
        service.faults.refuse(ASKED, Status.PERMISSION_DENIED, "not for this plan", times=None)
    elif harm == "late":
        service.faults.slow = {ASKED: 60.0}
    else:
        service.rates["gpu_hour_cost_t4"] = "0.000213"
    began = time.monotonic()
    before, after, price = session(pytester)
    assert time.monotonic() - began < 60
    assert "$0.590 an hour" in before
    assert after.endswith(f"by prices of {TABLE}")
    assert (price["date"], price["source"]) == (TABLE, table.SOURCE)


def test_a_price_for_a_card_that_there_is_not(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    result = run(pytester, "--remote=modal:T4", "-o", "remotegpu_prices=H10 = 3.00")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = said(result)
    assert "remotegpu_prices has a price for 'H10', which is neither a GPU of Modal's" in text
    assert "did you mean H100" in text
    assert service.requests == []
