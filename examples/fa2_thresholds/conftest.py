"""What the tests share: the sweep, and the host that runs them. Imports no torch here."""

from __future__ import annotations

import pytest
from sizes import SWEEP, without_a_card

from pytest_remotegpu.bench.fa2 import host
from pytest_remotegpu.bench.fa2.sweep import Sweep


@pytest.fixture(scope="session")
def here() -> host.Host:
    """Give this host: its card, or its CPU where tests of cards are tried without one."""
    torch = pytest.importorskip("torch", reason="torch is not installed where this test runs")
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    return host.this()


@pytest.fixture(scope="session")
def wanted(here: host.Host) -> Sweep:
    """Give what is measured: the sweep, and without a card one that is over soon."""
    return SWEEP if here.device.is_card else without_a_card()
