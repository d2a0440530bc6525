"""The rule of thresholds: monotone in the margin, robust to noise, free of order."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.bench.estimates import Estimate
from pytest_remotegpu.bench.maps import Map, search, search_map
from pytest_remotegpu.bench.thresholds import (
    NEVER,
    OFF,
    Answer,
    Threshold,
    compressed_length,
    in_words,
    span,
    threshold,
)

SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
MARGINS = st.floats(0.5, 3)


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    low, mid, high = sorted(draw(st.floats(0.2, 4)) for _ in range(3))
    return Estimate(mid, low, high, 9)


POINTS = st.lists(st.tuples(st.sampled_from(SIZES), estimates()), max_size=20)


def _points(*speedups: float) -> list[tuple[int, Estimate]]:
    pairs = zip(SIZES, speedups, strict=False)
    return [(size, Estimate.exactly(speedup)) for size, speedup in pairs]


def _place(found: Threshold) -> float:
    return math.inf if found.value is None else found.value


# the rule


@given(POINTS, MARGINS, MARGINS)
def test_a_larger_margin_never_allows_more(
    points: list[tuple[int, Estimate]], one: float, other: float
) -> None:
    lenient, strict = sorted((one, other))
    assert _place(threshold(points, margin=lenient)) <= _place(threshold(points, margin=strict))


@given(POINTS, MARGINS, st.randoms())
def test_order_says_nothing(
    points: list[tuple[int, Estimate]], margin: float, chance: random.Random
) -> None:
    mixed = points[:]
    chance.shuffle(mixed)
    assert threshold(mixed, margin=margin) == threshold(points, margin=margin)


@given(POINTS, MARGINS, st.floats(0, 1))
def test_more_noise_never_allows_more(
    points: list[tuple[int, Estimate]], margin: float, noise: float
) -> None:
    noisy = [
        (size, Estimate(found.mid, found.low - noise, found.high + noise, found.count))
        for size, found in points
    ]
    assert _place(threshold(points, margin=margin)) <= _place(threshold(noisy, margin=margin))


@given(POINTS.filter(bool), MARGINS)
def test_all_from_there_on_keep_it(points: list[tuple[int, Estimate]], margin: float) -> None:
    found = threshold(points, margin=margin)
    assert all(one.low >= margin for size, one in points if size >= _place(found))
    below = {size for size, _ in points if size < _place(found)}
    if below:
        assert any(one.low < margin for size, one in points if size == max(below))
    assert (
        found.answer
        is {
            (True, False): Answer.ALWAYS,
            (False, True): Answer.NEVER,
            (False, False): Answer.FROM,
        }[not below, found.value is None]
    )


def test_the_four_answers() -> None:
    assert threshold([], margin=1.2).answer is Answer.NO_DATA
    assert threshold(_points(2, 2), margin=1.2).answer is Answer.ALWAYS
    assert threshold(_points(2, 1), margin=1.2).answer is Answer.NEVER
    found = threshold(_points(1, 2, 1, 1.2, 3), margin=1.2, unit="num_cmp")
    assert (found.answer, found.value) == (Answer.FROM, 1024)
    assert str(found) == "from num_cmp = 1024"
    assert "at num_cmp = 512 the speedup is 1.00" in found.why
    assert str(threshold([], margin=1.2)) == "no data"
    assert str(threshold(_points(1), margin=1.2)) == "never"


def test_what_a_configuration_gets() -> None:
    assert threshold([], margin=1.2).number is None
    assert threshold(_points(2, 2), margin=1.2).number == 128
    assert threshold(_points(1), margin=1.2).number == NEVER
    assert threshold(_points(1, 2), margin=1.2).number == 256


@pytest.mark.parametrize("size", [0, 8192, 999999])
def test_a_size_that_stands_for_off_is_written_as_the_next(size: int) -> None:
    fast, slow = Estimate.exactly(2.0), Estimate.exactly(0.5)
    for found in (
        threshold([(size, fast)], margin=1.2),
        threshold([(size - 1, slow), (size, fast)], margin=1.2),
    ):
        assert found.value == size
        assert found.number == size + 1
        assert f"written as {size + 1} since {size} stands for off" in str(found)
    assert threshold([(size, slow)], margin=1.2).number == NEVER


@given(POINTS, MARGINS)
def test_no_answer_but_never_is_read_as_off(
    points: list[tuple[int, Estimate]], margin: float
) -> None:
    found = threshold(points, margin=margin)
    assert (found.number in OFF) == (found.answer is Answer.NEVER)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_no_number_keeps_no_margin(number: float) -> None:
    """Zero milliseconds divide to infinity: nothing runs in no time."""
    found = threshold(_points(2, 2, number), margin=1.2)
    assert found.answer is Answer.NEVER
    assert "for certain nothing" in found.why


def test_one_window_of_several_that_fails_decides() -> None:
    points = [*_points(1, 2, 2), (512, Estimate.exactly(1.1))]
    assert threshold(points, margin=1.2).answer is Answer.NEVER


@pytest.mark.parametrize(
    ("margin", "words"),
    [
        (1.2, "1.2 (20 % faster)"),
        (1.1, "1.1 (10 % faster)"),
        (1.5, "1.5 (50 % faster)"),
        (1.005, "1.005 (0.5 % faster)"),
        (2, "2 (100 % faster)"),
        (1, "1 (0 % faster)"),
        (0.9, "0.9 (10 % slower)"),
    ],
)
def test_a_margin_in_words(margin: float, words: str) -> None:
    assert in_words(margin) == words


@pytest.mark.parametrize("margin", [0, -1.2, math.nan, math.inf])
def test_what_is_no_margin(margin: float) -> None:
    with pytest.raises(ValueError, match="the margin is"):
        threshold(_points(1), margin=margin)


@given(st.integers(1, 9999), st.integers(1, 64), st.integers(1, 64))
def test_compressed_tokens(length: int, block: int, stride: int) -> None:
    begins = range(0, length - block + 1, stride)
    assert compressed_length(length, block, stride) == len(begins)


@pytest.mark.parametrize("numbers", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_what_is_no_length(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="is 0, and has to be 1 or more"):
        compressed_length(*numbers)


# several runs


@given(st.lists(POINTS, min_size=1, max_size=4), MARGINS)
def test_runs_together(runs: list[list[tuple[int, Estimate]]], margin: float) -> None:
    thresholds = [threshold(points, margin=margin) for points in runs]
    found = span(thresholds)
    assert found.runs == len(runs)
    answers = {(one.answer, one.value) for one in thresholds}
    assert found.agreed or len(answers) > 1
    assert all(_place(found.first) <= _place(one) <= _place(found.last) for one in thresholds)


def test_unequal_runs_are_an_interval() -> None:
    runs = [threshold(_points(*one), margin=1.2) for one in [(1, 2, 2), (1, 1, 2), (1, 2, 2)]]
    assert str(span(runs)) == "from S = 256 to from S = 512 in 3 runs"
    assert str(span(runs[:1])) == "from S = 256 in one run"
    assert str(span([*runs, threshold(_points(1), margin=1.2)])).endswith("to never in 4 runs")


def test_what_is_no_set_of_runs() -> None:
    with pytest.raises(ValueError, match="no run"):
        span([])
    with pytest.raises(ValueError, match="different margins"):
        span([threshold([], margin=1.2), threshold([], margin=1.5)])


# the map

WINDOWS = (32, 64, 128, 256)


@st.composite
def monotone(draw: st.DrawFn) -> Map:
    """Draw a map whose advantage grows with the length and shrinks with the window."""
    grown = draw(st.lists(st.floats(0, 1), min_size=len(SIZES), max_size=len(SIZES)))
    shrunk = draw(st.lists(st.floats(0, 1), min_size=len(WINDOWS), max_size=len(WINDOWS)))
    base = draw(st.floats(0.1, 3))
    cells = {}
    for row, size in enumerate(SIZES):
        for column, window in enumerate(WINDOWS):
            speedup = base + math.fsum(grown[: row + 1]) - math.fsum(shrunk[: column + 1])
            cells[size, window] = Estimate.exactly(max(speedup, 0.01))
    return Map(cells)


@st.composite
def anyhow(draw: st.DrawFn) -> Map:
    keys = st.tuples(st.sampled_from(SIZES), st.sampled_from(WINDOWS))
    return Map(draw(st.dictionaries(keys, estimates())))


@given(anyhow(), MARGINS)
def test_no_rule_takes_what_fails(found: Map, margin: float) -> None:
    """Neither the scalar nor the rule for windows takes a cell that does not keep the margin."""
    whole = _place(found.scalar(margin))
    rule = found.rule(margin)
    for (length, window), cell in found.cells.items():
        assert length < whole or cell.low >= margin
        start = rule[window]
        assert start is None or length < start or cell.low >= margin


@given(anyhow(), MARGINS)
def test_what_a_scalar_can_not_express(found: Map, margin: float) -> None:
    beyond = found.beyond(margin)
    starts = found.by_window(margin)
    whole = _place(found.scalar(margin))
    assert {*beyond} == {
        (length, window)
        for length, window in found.cells
        if _place(starts[window]) <= length < whole
    }


def test_a_regime() -> None:
    cells = {
        (size, window): Estimate.exactly(2 if size >= 8 * window else 1)
        for size in SIZES
        for window in WINDOWS
    }
    found = Map(cells)
    assert found.lengths == SIZES
    assert found.windows == WINDOWS
    assert found.scalar(1.2).value == 2048
    assert found.scalar(1.2, [32]).value == 256
    assert found.beyond(1.2, [32]) == ()
    assert (256, 32) in found.beyond(1.2)
    assert found.rule(1.2) == {32: 256, 64: 512, 128: 1024, 256: 2048}
    assert found.rule(3) == dict.fromkeys(WINDOWS)


# searching


@given(monotone(), MARGINS)
def test_a_search_finds_the_grids_answer(found: Map, margin: float) -> None:
    line = {length: cell for (length, window), cell in found.cells.items() if window == 32}
    asked: list[int] = []

    def measure(size: int) -> Estimate:
        asked.append(size)
        return line[size]

    quick, measured = search(SIZES, measure, margin=margin)
    whole = threshold(line.items(), margin=margin)
    assert (quick.answer, quick.value) == (whole.answer, whole.value)
    assert len(asked) == len(set(asked)) == len(measured) <= math.ceil(math.log2(len(SIZES))) + 1


@given(monotone(), MARGINS)
def test_a_search_finds_the_maps_rule(found: Map, margin: float) -> None:
    asked: list[tuple[int, int]] = []

    def measure(length: int, window: int) -> Estimate:
        asked.append((length, window))
        return found.cells[length, window]

    quick = search_map(SIZES, WINDOWS, measure, margin=margin)
    assert quick.rule(margin) == found.rule(margin)
    assert quick.scalar(margin).value == found.scalar(margin).value
    assert len(asked) == len(set(asked))
    assert len(asked) <= len(WINDOWS) * 4


@given(monotone(), MARGINS, MARGINS)
def test_a_search_by_another_margin_never_allows_more_than_the_grid(
    found: Map, margin: float, other: float
) -> None:
    """What a search has skipped is not known, and counts for nothing."""

    def measure(length: int, window: int) -> Estimate:
        return found.cells[length, window]

    quick = search_map(SIZES, WINDOWS, measure, margin=margin)
    assert _place(quick.scalar(other)) >= _place(found.scalar(other))


def test_a_search_of_nothing() -> None:
    def never(_: int) -> Estimate:
        raise AssertionError

    assert search([], never, margin=1.2)[0].answer is Answer.NO_DATA
    assert search_map([], [32], lambda *_: never(0), margin=1.2).cells == {}
