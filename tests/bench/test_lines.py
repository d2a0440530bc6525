"""The text lines of benchmarks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.bench.lines import Compressed, Selection, Sliding, parse

COUNT = st.integers(1, 10**6)
TIME = st.floats(0, 1e6).map(lambda number: round(number, 2))
NUMBER = st.one_of(TIME, st.sampled_from([math.inf, -math.inf]))
ROWS = st.one_of(
    st.builds(Sliding, COUNT, COUNT, TIME, TIME, NUMBER),
    st.builds(Compressed, COUNT, COUNT, COUNT, TIME, TIME, NUMBER),
    st.builds(
        Selection,
        *[COUNT] * 6,
        st.floats(0, 1e6).map(lambda number: round(number, 3)),
        st.floats(0, 1e6).map(lambda number: round(number, 3)),
        TIME,
        st.floats(0, 1).map(lambda number: float(f"{number:.4e}")),
    ),
)


@given(st.lists(ROWS))
def test_what_is_written_is_read(rows: list[Sliding | Compressed | Selection]) -> None:
    text = "\n".join(map(str, rows))
    found = parse(text)
    assert found.rows == tuple(rows)
    assert not found.unread
    assert found.complaint() == ""
    assert "\n".join(map(str, found.rows)) == text


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_each_line_is_a_row_or_reported(lines: list[str]) -> None:
    found = parse(lines)
    assert len(found.rows) + len(found.unread) == sum(bool(line.strip()) for line in lines)


def test_the_lines_to_the_letter() -> None:
    lines = (
        "S=512 w=64 sliding masked 0.41 ms  fa2 0.20 ms  speedup x2.05",
        "S=1024 l=32 d=16 compressed masked 1.00 ms  fa2 2.00 ms  speedup x0.50",
        (
            "dense,N=64,H=8,D=64,Dv=64,L=256,streams=1, tri_ms=0.125, ref_ms=0.250, "
            "speedup=2.00x, mae=1.2500e-04"
        ),
    )
    found = parse(lines)
    assert found.rows == (
        Sliding(512, 64, 0.41, 0.2, 2.05),
        Compressed(1024, 32, 16, 1.0, 2.0, 0.5),
        Selection(64, 8, 64, 64, 256, 1, 0.125, 0.25, 2.0, 1.25e-4),
    )
    assert [row.tokens for row in found.rows if isinstance(row, Compressed)] == [63]
    assert tuple(map(str, found.rows)) == lines


@pytest.mark.parametrize("number", ["1e-3", "1.5E+2", "inf", "-inf", "nan", "Infinity", ".5", "7."])
def test_no_number_makes_a_row_vanish(number: str) -> None:
    line = f"S=512 w=64 sliding masked {number} ms  fa2 0.20 ms  speedup x{number}"
    (row,) = parse(line).rows
    assert isinstance(row, Sliding)
    assert str(row.masked_ms) == str(float(number))
    assert str(row.speedup) == str(float(number))


def test_what_is_not_understood() -> None:
    lines = (
        "# a headline",
        "",
        "S=512 w=64 sliding masked 0.41 ms  fa2 0.20 ms  speedup x2.05",
        "S=512 w=64 sliding masked fast ms  fa2 0.20 ms  speedup x2.05",
        "S=512 l=32 d=0 compressed masked 1.00 ms  fa2 2.00 ms  speedup x0.50",
        "S=512 w=64 sliding masked 0.41 ms  fa2 0.20 ms  speedup x2.05 or so",
        "S=0 w=64 sliding masked 0.41 ms  fa2 0.20 ms  speedup x2.05",
        "S=512 w=0 sliding masked 0.41 ms  fa2 0.20 ms  speedup x2.05",
        "S=1000000000 w=64 sliding masked 0.41 ms  fa2 0.20 ms  speedup x2.05",
        f"S={'9' * 5000} w=64 sliding masked 0.41 ms  fa2 0.20 ms  speedup x2.05",
    )
    found = parse("\n".join(lines))
    assert len(found.rows) == 1
    assert [number for number, _ in found.unread] == [1, 4, 5, 6, 7, 8, 9, 10]
    assert found.complaint().startswith("8 lines were not understood:\n  line 1: # a headline\n")
    assert parse("?").complaint() == "1 line was not understood:\n  line 1: ?"
