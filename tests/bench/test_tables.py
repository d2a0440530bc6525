"""Benchmarks as lines for a terminal."""

from __future__ import annotations

from bench.benchmarks import ENVIRONMENT, kept, plain
from pytest_remotegpu.bench.measured import Entrant, Rate, Result
from pytest_remotegpu.bench.tables import lines
from pytest_remotegpu.bench.timing import Mode

FLAT = {Mode.EAGER: (0.5,) * 5, Mode.GRAPH: (0.25,) * 5}
RATES = {
    Mode.GRAPH: {
        "bytes": Rate(3e12, 4e12, "measured copy"),
        "flops": Rate(4.2e13, None),
    }
}


def test_everything_is_in_its_place() -> None:
    result = Result(
        {
            "new": Entrant(900.0, FLAT, 0.4, rates=RATES),
            "reference": Entrant(2.0, {Mode.EAGER: (1.0,) * 5}, 1.0, uncaptured="it waits"),
        },
        {Mode.EAGER: "cold", Mode.GRAPH: "warm"},
        ENVIRONMENT,
        notes=("no graph of reference: it waits",),
        group="rope",
    )
    none = " " * len("3 TB/s (75% of measured copy)  42 TFLOP/s")
    rates = "3 TB/s (75% of measured copy)  42 TFLOP/s"
    assert list(lines(kept(result.plain(), test="test_a.py::test_rope"))) == [
        "NVIDIA X1, driver 580.1, torch 2.11.0, CUDA 13.0",
        "test_a.py::test_rope [rope]",
        f"  new        eager  0.5 (0.5 to 0.5) ms     x2 (2 to 2)  {none}  host-bound  cold L2",
        f"  new        graph  0.25 (0.25 to 0.25) ms               {rates}              warm L2",
        f"  reference  eager  1 (1 to 1) ms                        {none}  host-bound  cold L2",
        "    no graph of reference: it waits",
        "    the first call of new took 900 ms",
    ]


def test_a_place_is_named_where_it_changes() -> None:
    one, two, other = plain(), plain(), plain(device="NVIDIA X2")
    found = list(lines(kept(one, two, other)))
    assert [line.partition(",")[0] for line in found if "driver" in line] == [
        "NVIDIA X1",
        "NVIDIA X2",
    ]
    assert [line for line in found if line.startswith("test_a")] == [
        "test_a.py::test",
        "test_a.py::test (2)",
        "test_a.py::test (3)",
    ]


def test_what_is_not_valid_says_so() -> None:
    (_place, line, *_) = lines(kept(plain(why="the card was too hot")))
    assert line == "test_a.py::test NOT VALID: the card was too hot"


def test_no_name_moves_the_cursor() -> None:
    result = Result({"a\x1b[2Jb": Entrant(1.0, {Mode.WALL: (1.0,) * 5})}, {}, {"device": "\x1bx"})
    for line in lines(kept(result.plain())):
        assert line.isprintable()
