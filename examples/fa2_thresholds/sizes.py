"""What is measured, as the file beside this one says it; and less of it where there is no card."""

from __future__ import annotations

from pathlib import Path

from pytest_remotegpu.bench.fa2 import sweep
from pytest_remotegpu.bench.fa2.columns import STAND_IN
from pytest_remotegpu.bench.fa2.sweep import Sweep

SWEEP = sweep.read(Path(__file__).with_name("sweep.toml"))
SHORT = (
    *("lengths=32,64", "windows=8", "compressed-lengths=64", "blocks=[[8, 4]]"),
    *("rounds=5", "warmup=1", f"columns={','.join((*SWEEP.columns, STAND_IN))}"),
)


def without_a_card() -> Sweep:
    """Give a sweep that a CPU is through with soon; none of its numbers counts."""
    return sweep.changed(SWEEP, SHORT)
