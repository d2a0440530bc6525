"""Tests for this machine, for one GPU and for two."""

from __future__ import annotations

from pathlib import Path

import pytest
from descent import gradient, losses, split

POINTS = [(x / 10, 3 * x / 10) for x in range(1, 21)]


@pytest.mark.parametrize("parts", [1, 2, 8])
def test_split_keeps_every_point(parts: int) -> None:
    dealt = split(POINTS, parts)
    assert len(dealt) == parts
    assert sorted(point for part in dealt for point in part) == POINTS


@pytest.mark.gpu
@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_loss_falls(rate: float, artifacts_dir: Path) -> None:
    curve = losses(POINTS, rate, steps=30)
    text = "\n".join(f"{step},{loss:.6f}" for step, loss in enumerate(curve))
    (artifacts_dir / "loss.csv").write_text(f"step,loss\n{text}\n", encoding="utf-8")
    assert curve[-1] < curve[0] / 1000


@pytest.mark.gpu
def test_gradient_vanishes_at_the_solution() -> None:
    assert gradient(POINTS, slope=3.0) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.gpu(2)
def test_two_halves_make_the_whole() -> None:
    first, second = (gradient(part, slope=1.0) for part in split(POINTS, 2))
    assert first + second == pytest.approx(gradient(POINTS, slope=1.0))
