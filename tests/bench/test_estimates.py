"""Medians with their intervals."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.bench.estimates import Estimate, median, ratio

TIMES = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=60)


@given(TIMES, st.randoms())
def test_order_says_nothing(samples: list[float], chance: random.Random) -> None:
    mixed = samples[:]
    chance.shuffle(mixed)
    assert median(mixed) == median(samples)


@given(TIMES)
def test_the_median_lies_in_its_interval(samples: list[float]) -> None:
    found = median(samples)
    assert found.low <= found.mid <= found.high
    assert found.mid == statistics.median(samples)
    assert {found.low, found.high} <= {*samples}
    assert found.count == len(samples)


@given(TIMES)
def test_more_confidence_is_wider(samples: list[float]) -> None:
    narrow, wide = median(samples, 0.8), median(samples, 0.99)
    assert wide.low <= narrow.low
    assert narrow.high <= wide.high


@given(TIMES, st.floats(1e-3, 1e3))
def test_a_unit_says_nothing(samples: list[float], factor: float) -> None:
    found, scaled = median(samples), median([number * factor for number in samples])
    assert scaled.low == found.low * factor
    assert scaled.high == found.high * factor


@pytest.mark.parametrize("count", [5, 9, 20, 21, 60])
def test_the_interval_is_the_bootstraps(count: int) -> None:
    """The closed form gives what many resamples give."""
    chance = random.Random(count)  # noqa: S311 -- no secret
    samples = sorted(chance.lognormvariate(0, 0.3) for _ in range(count))
    middles = []
    for _ in range(20_000):
        drawn = sorted(chance.choices(range(count), k=count))
        middles.append((drawn[(count - 1) // 2], drawn[count // 2]))
    low = sorted(one for one, _ in middles)[int(0.025 * 20_000)]
    high = sorted(one for _, one in middles)[int(0.975 * 20_000)]
    found = median(samples)
    assert abs(samples.index(found.low) - low) <= 1
    assert abs(samples.index(found.high) - high) <= 1


def test_the_interval_holds_what_it_promises() -> None:
    """The true median of a skewed distribution lies in about 95 of 100 intervals."""
    chance = random.Random(0)  # noqa: S311 -- no secret
    hits = 0
    for _ in range(1000):
        found = median([chance.lognormvariate(0, 1) for _ in range(31)])
        hits += found.low <= 1 <= found.high
    assert 920 <= hits <= 990


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.5, 50)), min_size=1, max_size=30))
def test_what_slows_a_round_down_says_nothing(rounds: list[tuple[float, float]]) -> None:
    """Both contestants of a round are as much slower as the card is."""
    reference = [3 * slow for _, slow in rounds]
    contestant = [2 * slow for _, slow in rounds]
    found = ratio(reference, contestant)
    for number in (found.low, found.mid, found.high):
        assert number == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("samples", "words"),
    [([], "no measurement"), ([1.0, math.nan], "nan"), ([math.inf], "inf")],
)
def test_what_has_no_median(samples: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        median(samples)


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 95, math.nan])
def test_what_is_no_confidence(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        median([1.0], confidence)


@pytest.mark.parametrize(
    ("reference", "contestant", "words"),
    [
        ([1.0], [1.0, 2.0], "1 rounds of the reference and 2"),
        ([1.0], [0.0], "0.0"),
        ([-1.0], [1.0], "-1.0"),
        ([math.inf], [1.0], "inf"),
        ([], [], "no measurement"),
    ],
)
def test_what_has_no_ratio(reference: list[float], contestant: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ratio(reference, contestant)


def test_in_words() -> None:
    assert str(Estimate.exactly(1.234)) == "1.23"
    assert str(Estimate(1.5, 1.25, 1.75, 9)) == "1.50 (1.25 to 1.75)"
