"""What is told of a measurement: lines, notes, the exit status."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from pytest_remotegpu.bench.fa2 import host, limits, measuring
from pytest_remotegpu.bench.fa2.asking import Asked
from pytest_remotegpu.bench.fa2.measured import Device, Measured
from pytest_remotegpu.bench.fa2.rows import (
    FA2,
    MASKED,
    Branch,
    Direction,
    Parity,
    Problem,
    Regime,
    Row,
)
from pytest_remotegpu.bench.fa2.sweep import Shape, Sweep
from pytest_remotegpu.bench.lines import parse
from pytest_remotegpu.bench.wall import WallTimer
from pytest_remotegpu.errors import UsageError

SLIDING = Sweep().problems()[0]
COMPRESSED = Sweep().problems()[-1]


@pytest.mark.parametrize("problem", [SLIDING, COMPRESSED])
def test_lines_are_those_of_old(problem: Problem) -> None:
    line = measuring.line(problem, 0.5, 0.25, 2.0)
    found = parse(line)
    assert not found.unread
    assert str(found.rows[0]) == line
    assert line.endswith("masked 0.50 ms  fa2 0.25 ms  speedup x2.00")


def row(length: int, *kernels: str, column: str = MASKED, **changes: Any) -> Row:
    problem = dataclasses.replace(SLIDING, length=length, **changes)
    return Row(problem, column, Regime.EAGER, (1.0,), kernels, Parity.PASSED)


def test_a_reference_that_is_torchs_slowest_way_is_told() -> None:
    plain = "at::native::anonymous::softmax_warp_forward"
    fused = "fmha_cutlassF_f16_aligned_64x64_rf_sm80"
    assert measuring.plain([row(256, "gemm", fused), row(256), row(256, column=FA2)]) == []
    assert measuring.plain([row(256, plain, column=FA2)]) == []
    (note,) = measuring.plain([row(256, "gemm", plain), row(256, "gemm", plain), row(512, fused)])
    assert note.endswith("its slowest way, at S=256 w=32 sliding forward float16")
    (note,) = measuring.plain([row(length, plain) for length in (1, 2, 3, 4)])
    assert note.endswith("S=3 w=32 sliding forward float16, ...")


SMALL = Sweep(
    branches=(Branch.SLIDING,),
    lengths=(16,),
    windows=(4,),
    shapes=(Shape(width=8, value_width=8),),
    directions=tuple(Direction),
    columns=(MASKED,),
    rounds=5,
    warmup=1,
)


def test_a_card_that_does_for_nothing_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    old = host.Host(limits.Device("cuda", "Tesla T4", 7.5), WallTimer())
    asked = Asked(SMALL, out=str(tmp_path / "out"), away=True)
    with pytest.raises(UsageError, match=r"Tesla T4 has 7\.5: take L4"):
        measuring.measure(asked, old)
    assert not (tmp_path / "out").exists()


PASSED, FAILED, UNKNOWN = Parity.PASSED, Parity.FAILED, Parity.NOT_CHECKED


@pytest.mark.parametrize(
    ("masked", "fa2", "timed", "expected"),
    [
        (PASSED, PASSED, True, 0),
        (PASSED, FAILED, True, 1),
        (FAILED, PASSED, True, 1),
        (PASSED, PASSED, False, 5),
        (PASSED, UNKNOWN, False, 5),
        (UNKNOWN, PASSED, True, 5),
    ],
)
def test_the_exit_status_is_that_of_parity_and_of_what_was_timed(
    masked: Parity, fa2: Parity, expected: int, *, timed: bool
) -> None:
    rows = (
        dataclasses.replace(row(256), parity=masked),
        dataclasses.replace(row(256, column=FA2), parity=fa2, times=(1.0,) if timed else ()),
    )
    found = Measured(Device(cuda_available=True, device_name="NVIDIA H200"), rows)
    assert measuring.status(found) == expected
