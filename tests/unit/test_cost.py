"""Money as values: rates, bills that add up whatever is claimed, and what a run may come to."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu import cost
from pytest_remotegpu.backends.modal import table
from pytest_remotegpu.cost import Bill, Rate, WorkerCost
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.gpu import Shape

ONE, TWO = Shape(1), Shape(2)
seconds = st.floats(0, 1e6)
rates = st.none() | st.builds(
    Rate, st.floats(0, 1e4), st.just("2026-01-01"), st.just("a page"), st.floats(0, 3600)
)


# rates


@pytest.mark.parametrize(
    ("shape", "prices", "hourly"),
    [
        (ONE, {}, None),
        (ONE, {"ssh:box": 2.0}, 2.0),
        (TWO, {"ssh:box": 2.0}, 4.0),
        (Shape(0), {"ssh:box": 2.0}, 2.0),
        (TWO, {"ssh": 1.0}, 2.0),
        (TWO, {"ssh": 1.0, "ssh:box": 3.0}, 6.0),
        (ONE, {"ssh:other": 1.0}, None),
        (Shape(2, ("H100",)), {"h100": 4.0, "ssh": 1.0}, 8.0),
        (Shape(1, ("H100", "A100")), {"H100": 4.0, "A100": 2.0}, 4.0),
        (Shape(1, ("H100", "A100")), {"A100": 2.0}, None),
        (Shape(1, ("H100",)), {"H100": 4.0, "ssh:box": 3.0}, 3.0),
    ],
)
def test_the_nearest_price_counts(
    shape: Shape, prices: dict[str, float], hourly: float | None
) -> None:
    rate = cost.find_rate("ssh:box", shape, prices, None)
    assert (rate and rate.usd_per_hour) == hourly
    assert rate is None or rate.source == cost.OWN


def test_a_backends_own_price_stands_between_the_users() -> None:
    asked = Rate(9.0, "2026-01-01", "a page", 60.0)
    assert cost.find_rate("cloud:A", ONE, {}, asked) is asked
    assert cost.find_rate("cloud:A", ONE, {"cloud": 1.0}, asked) is asked
    own = Rate(1.0, source=cost.OWN, after=60.0, ending=4.0)
    for name in ("cloud:A", "cloud"):
        known = asked if name == "cloud:A" else None
        found = cost.find_rate("cloud:A", ONE, {name: 1.0}, known, after=60.0, ending=4.0)
        assert found == own


def test_of_several_types_the_dearest_is_the_price() -> None:
    found = table.price(["T4", "A100"], 2, {})
    assert found is not None
    assert found.usd_per_hour == pytest.approx(2 * 3600 * 0.000583)
    assert (found.date, found.source) == (table.DATE, table.SOURCE)
    own = table.price(["T4", "A100"], 2, {"a100": 0.1, "t4": 0.2, "ssh:box": 7.0})
    assert own is not None
    assert (own.usd_per_hour, own.date, own.source) == (0.4, "", cost.OWN)
    assert table.price(["T4", "V100"], 1, {}) is None
    assert table.price([], 1, {}) is None


# bills


@given(
    rates,
    seconds,
    st.none() | seconds,
    seconds,
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=10),
)
def test_tests_start_and_idle_are_all_of_it(
    rate: Rate | None, opened: float, first: float | None, wall: float, claims: list[float]
) -> None:
    after = rate.after if rate else 0.0
    bill = Bill("w", TWO, rate, opened - 5, since=opened, after=after)
    if first is not None:
        bill.begin(opened + first)
        bill.begin(opened + first + 1)
    now = opened + wall
    charged = [bill.take(claim, now) for claim in claims]
    bill.ended = now
    final = bill.close(now + 50, began=opened - 5)
    assert all(part >= -1e-6 for part in (*charged, final.start, final.busy, final.idle))
    assert final.busy == pytest.approx(sum(charged), abs=1e-6)
    assert final.seconds == pytest.approx(now - opened + after, abs=1e-6)
    assert (final.tests, final.opened, final.name) == (len(claims), 0.0, "w")
    if rate is None:
        assert final.usd is None
        return
    assert final.usd is not None
    parts = [rate.usd(part) for part in (*charged, final.start, final.idle)]
    assert sum(parts) == pytest.approx(final.usd, rel=1e-9, abs=1e-6)
    assert bill.usd(now + 50) == pytest.approx(final.usd, rel=1e-9, abs=1e-6)


def test_a_worker_without_tests_is_all_start() -> None:
    final = Bill("w", ONE, Rate(3600.0), 10.0, since=10.0).close(14.0, began=4.0)
    assert (final.start, final.busy, final.idle, final.usd, final.opened) == (4, 0, 0, 4, 6)


def test_a_worker_that_never_had_a_machine_costs_nothing() -> None:
    bill = Bill("w", ONE, Rate(3600.0, after=60.0), 10.0, after=60.0)
    assert bill.usd(20.0) == 0
    final = bill.close(20.0, began=4.0)
    assert (final.start, final.busy, final.idle, final.usd, final.opened) == (0, 0, 0, 0, 6)


def test_one_machine_is_paid_for_once_at_a_time() -> None:
    one, two, three = (
        Bill("w", ONE, Rate(3600.0), at, since=at, after=60.0, ended=at + 10) for at in (0, 15, 20)
    )
    one.before(two)
    two.before(three)
    assert (one.idle, two.idle, three.since, three.idle) == (5, 0, 25, 60)
    assert sum(bill.usd(99) for bill in (one, two, three)) == 30 + 60


def worker(rate: Rate | None, *, busy: float = 2.0) -> WorkerCost:
    return WorkerCost("w", ONE, "1 GPU", 1, 0.0, 1.0, busy, 3.0, rate)


def test_a_sum_is_of_what_is_known() -> None:
    assert cost.total([]) is None
    assert cost.total([worker(None)]) is None
    assert cost.total([worker(None), worker(Rate(3600)), worker(Rate(7200))]) == 18


def test_words_for_what_was_spent() -> None:
    assert cost.words([], 1.0) == ""
    assert cost.words([worker(None)], 1.0) == ""
    text = cost.words([worker(Rate(36, "2026-05-25", "a page")), worker(None)], 0.5)
    assert text == (
        "about $0.060 (tests $0.020, start $0.010, idle $0.030) of at most $0.500, "
        "by prices of 2026-05-25 (a page); the price of 1 more is not known"
    )
    own = cost.words([worker(Rate(36, source=cost.OWN))], None)
    assert own.endswith(", by prices (ini file, remotegpu_prices)")
    assert "most" not in own


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        *((0, "$0"), (1e-9, "$0.0001"), (0.0004, "$0.0004"), (0.0236, "$0.024")),
        *((0.594, "$0.594"), (3.9492, "$3.95"), (1234.5, "$1234.50")),
    ],
)
def test_an_amount_is_shown_as_people_read_it(amount: float, shown: str) -> None:
    assert cost.usd(amount) == shown


@given(st.floats(1e-9, 1e6))
def test_a_bound_is_never_shown_as_less(amount: float) -> None:
    shown = float(cost.bound(amount).removeprefix("$"))
    assert shown >= amount * (1 - 1e-8)
    assert shown <= amount + max(amount * 0.01, 0.001)
    assert cost.bound(shown) == cost.usd(shown)


@given(st.floats(0.01, 1000), st.integers(1, 20), st.floats(1, 1e5))
def test_a_cap_of_what_is_shown_is_enough(rate: float, workers: int, limit: float) -> None:
    found = ask({ONE: workers}, rate, limit)
    assert found.worst is not None
    shown = float(cost.bound(found.worst).removeprefix("$"))
    assert cost.bound(found.worst) in found.text
    if shown > workers * rate * (66 + 1) / 3600:
        assert ask({ONE: workers}, rate, limit, shown).worst == found.worst


@given(st.floats(1e-9, 1e9))
def test_an_amount_is_never_shown_as_nothing(amount: float) -> None:
    shown = float(cost.usd(amount).removeprefix("$"))
    assert shown > 0
    assert shown == pytest.approx(amount, rel=0.01, abs=0.001)


# what a run may come to


def ask(
    workers: dict[Shape, int], rate: float | None, limit: float = 0.0, most: float = 0.0
) -> cost.Forecast:
    known = {shape: rate and Rate(rate * shape.count, after=60.0) for shape in workers}
    return cost.forecast(
        workers,
        {shape: found or None for shape, found in known.items()},
        seconds=limit,
        most=most,
        least=6.0,
    )


def test_worst_case_is_limit_times_rate_times_workers() -> None:
    found = ask({ONE: 3, TWO: 1}, 10.0, limit=1800.0)
    assert found.worst == pytest.approx(50 * (1800 + 6 + 60) / 3600)
    assert found.text == "at most $25.92, $50.00 an hour for 1800 s and its end"


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert ask({ONE: 1}, None, limit=60.0) == cost.Forecast(None, "")
    assert cost.forecast({}, {}, seconds=0, most=0, least=6) == cost.Forecast(None, "")


def test_a_price_that_is_lacking_is_named() -> None:
    found = cost.forecast(
        {ONE: 1, TWO: 1}, {ONE: Rate(3.6), TWO: None}, seconds=994, most=0, least=6
    )
    assert found.worst is None
    assert found.text == (
        "at most $1.00, $3.60 an hour for 994 s and its end; no price is known for 2 GPUs"
    )
    with pytest.raises(UsageError, match="no price is known for 2 GPUs"):
        cost.forecast({ONE: 1, TWO: 1}, {ONE: Rate(3.6), TWO: None}, seconds=1000, most=5, least=6)


def test_what_is_free_meets_every_cap() -> None:
    free = cost.forecast({ONE: 1}, {ONE: Rate(0.0)}, seconds=0, most=1, least=6)
    assert free.worst == 0.0
    assert cost.forecast({ONE: 1}, {ONE: Rate(0.0)}, seconds=99, most=1, least=6).worst == 0.0


@given(
    st.dictionaries(st.sampled_from([ONE, TWO, Shape(8)]), st.integers(1, 50), min_size=1),
    st.floats(0.01, 1000),
    st.floats(0, 1e5),
    st.floats(0.01, 1e5),
)
def test_no_run_under_a_cap_may_cost_more(
    workers: dict[Shape, int], rate: float, limit: float, most: float
) -> None:
    uncapped = ask(workers, rate, limit)
    try:
        found = ask(workers, rate, limit, most)
    except UsageError as error:
        shorter = re.search(r"--remote-run-timeout \((\d+) s\)", str(error))
        if shorter and int(shorter[1]) > 6:
            ask(workers, rate, float(shorter[1]), most)  # the way out is one
        return
    assert found.worst is not None
    assert found.worst <= most
    assert found.worst == (uncapped.worst if limit else most)
