"""The loss of several ranks, as numbers: what equals one rank's, and which wrong divisor it was."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.diagnostics import judge_loss_scale

MEANS, COUNTS = (2.0, 4.0), (3, 1)
WHOLE = 2.5
sizes = st.integers(1, 10_000)
some_losses = st.floats(0.01, 20)


def scaled(means: tuple[float, ...], counts: tuple[int, ...]) -> list[float]:
    """Scale as is right for gradients that are averaged: sums over all tokens, times the ranks."""
    return [m * n * len(means) / sum(counts) for m, n in zip(means, counts, strict=True)]


@given(st.lists(st.tuples(some_losses, sizes), min_size=2, max_size=8))
def test_token_weighted_losses_pass(ranks: list[tuple[float, int]]) -> None:
    means, counts = zip(*ranks, strict=True)
    assert judge_loss_scale(scaled(means, counts), means, counts).passed
    summed = [loss / len(means) for loss in scaled(means, counts)]
    assert judge_loss_scale(summed, means, counts, reduce="sum").passed


@pytest.mark.parametrize(
    ("losses", "code"),
    [
        (MEANS, "mean-of-means"),
        ((4.0, 8.0), "mean-of-means"),
        ((1.0, 2.0), "mean-of-means"),
        ((6.0, 4.0), "multiplied-by-world-size"),
        ((1.5, 1.0), "divided-twice"),
        ((2.0, 2.0), "wrong-divisor"),
        ((math.nan, 1.0), "not-finite"),
    ],
)
def test_a_wrong_divisor_is_named(losses: tuple[float, ...], code: str) -> None:
    verdict = judge_loss_scale(losses, MEANS, COUNTS)
    assert verdict.codes == (code,)
    assert verdict.value("loss of the joined batch") == WHOLE


def test_a_forgotten_world_size_is_named_with_sums_too() -> None:
    losses = scaled(MEANS, COUNTS)
    assert judge_loss_scale(losses, MEANS, COUNTS, reduce="sum").codes == (
        "multiplied-by-world-size",
    )


@given(
    st.lists(st.tuples(some_losses, sizes), min_size=2, max_size=4).filter(
        lambda ranks: len({round(loss, 1) for loss, _ in ranks}) > 1 and len({*ranks}) > 1
    ),
    st.sampled_from([("multiplied-by-world-size", 1), ("divided-twice", -1)]),
)
def test_a_factor_of_the_world_size_never_passes(
    ranks: list[tuple[float, int]], fault: tuple[str, int]
) -> None:
    means, counts = zip(*ranks, strict=True)
    losses = [loss * len(means) ** fault[1] for loss in scaled(means, counts)]
    verdict = judge_loss_scale(losses, means, counts)
    assert not verdict
    assert verdict.codes[0] in (fault[0], "mean-of-means")  # which may be the same number


def test_equal_counts_are_noted_since_they_hide_a_mean_of_means() -> None:
    verdict = judge_loss_scale(MEANS, MEANS, (5, 5))
    assert verdict.passed
    assert verdict.codes == ("equal-counts",)


def test_a_joined_batch_that_is_not_its_parts_is_named() -> None:
    verdict = judge_loss_scale((3.0, 3.0), MEANS, COUNTS, whole=3.0)
    assert verdict.codes == ("joined-batch-differs",)


def test_one_rank_shows_nothing() -> None:
    assert judge_loss_scale((1.0,), (1.0,), (1,)).codes == ("one-rank",)


@pytest.mark.parametrize(
    ("losses", "counts", "reduce"),
    [((1.0,), (1, 1), "mean"), ((), (), "mean"), (MEANS, (0, 1), "mean"), (MEANS, COUNTS, "max")],
)
def test_numbers_that_can_not_be_meant_are_refused(
    losses: tuple[float, ...], counts: tuple[int, ...], reduce: str
) -> None:
    with pytest.raises(ValueError, match=r"one value for each rank|'mean' or 'sum'"):
        judge_loss_scale(losses, losses, counts, reduce=reduce)
