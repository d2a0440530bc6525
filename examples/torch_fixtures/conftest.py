"""torch as a fixture: imported where the test runs, so that a laptop needs no torch."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def torch() -> Any:
    """Give the module, once for each worker; skip where it is not installed."""
    return pytest.importorskip("torch", reason="torch is not installed where this test runs")
