"""The gate: what is slower for certain, what is not compared, and the file that it is told from."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.benchmarks import kept, plain
from pytest_remotegpu.bench import baselines
from pytest_remotegpu.bench.baselines import NOISE, Kind
from pytest_remotegpu.bench.timing import Mode
from pytest_remotegpu.errors import UsageError


def kinds(now: dict[str, Any], *before: dict[str, Any]) -> list[Kind]:
    """Compare one benchmark with a baseline that has these for the same test."""
    there = [one for each in before for one in kept(each)]
    return [found.kind for found in baselines.compare(kept(now)[0], there)]


@pytest.mark.parametrize(
    ("ms", "kind"),
    [
        (1.0, Kind.SAME),
        (1.04, Kind.SAME),
        (0.96, Kind.SAME),
        (1.5, Kind.SLOWER),
        (0.5, Kind.FASTER),
        (100.0, Kind.SLOWER),
    ],
)
def test_slower_is_told_from_noise(ms: float, kind: Kind) -> None:
    assert kinds(plain(ms), plain(1.0)) == [kind]


@given(st.floats(0.01, 100), st.floats(0.01, 100), st.floats(0, 0.1), st.floats(0, 0.1))
def test_intervals_decide(now: float, before: float, wide: float, narrow: float) -> None:
    """Slower is what is so at both intervals' ends; nothing is slower and faster at once."""
    mine, its = plain(now, spread=wide), plain(before, spread=narrow)
    (kind,) = kinds(mine, its)
    (back,) = kinds(its, mine)
    (one,), (other,) = (
        [timed for *_, timed in kept(each)[0].benchmark.timed()] for each in (mine, its)
    )
    assert (kind is Kind.SLOWER) is (one.low > NOISE * other.high)
    assert (kind is Kind.SLOWER) is (back is Kind.FASTER)


@given(st.floats(0.01, 1.0))
def test_an_improvement_never_fails(factor: float) -> None:
    assert kinds(plain(factor), plain(1.0)) != [Kind.SLOWER]


@pytest.mark.parametrize(
    ("here", "text"),
    [
        ({"device": "NVIDIA X2"}, "device is NVIDIA X2 now and NVIDIA X1 in the baseline"),
        ({"driver": "590"}, "driver is 590 now and 580.1 in the baseline"),
        ({"torch": "2.12.0"}, "torch is 2.12.0 now and 2.11.0 in the baseline"),
        ({"cuda": None}, "cuda is unknown now and 13.0 in the baseline"),
        ({"dtype": "float16"}, "dtype is float16 now and bfloat16 in the baseline"),
        (
            {"clock": {"set_sm_mhz": 1200}},
            "clock is set_sm_mhz 1200 now and most_sm_mhz 1980, set_sm_mhz None in the baseline",
        ),
        (
            {"held_back": ("power cap",)},
            "power cap holds the card back now, and nothing in the baseline",
        ),
        ({"l2": "warm"}, "the L2 cache is warm now and cold in the baseline"),
        (
            {"mode": Mode.WALL, "host": "Another"},
            "host is Another now and Some CPU in the baseline",
        ),
        ({"mode": Mode.WALL, "python": "3.12.1"}, "python is 3.12 now and 3.11 in the baseline"),
    ],
)
def test_another_place_is_flagged_and_not_compared(here: dict[str, Any], text: str) -> None:
    there = {"mode": here["mode"]} if "mode" in here else {}
    (found,) = baselines.compare(kept(plain(9.0, **here))[0], kept(plain(1.0, **there)))
    assert found.kind is Kind.APART
    assert found.text == text


def test_a_patch_of_python_and_another_host_of_a_card_are_no_other_place() -> None:
    assert kinds(plain(9.0, host="Another"), plain()) == [Kind.SLOWER]
    now, before = plain(9.0, mode=Mode.WALL, python="3.11.9"), plain(mode=Mode.WALL)
    assert kinds(now, before) == [Kind.SLOWER]


def test_of_several_places_the_same_one_counts() -> None:
    others = plain(0.1, device="NVIDIA X2"), plain(1.0), plain(0.1, device="NVIDIA X3")
    assert kinds(plain(1.0), *others) == [Kind.SAME]


@pytest.mark.parametrize("invalid", [True, False])
def test_what_is_not_valid_is_not_compared(invalid: bool) -> None:
    hot = plain(9.0, why="too hot")
    now, before = (hot, plain()) if invalid else (plain(9.0), hot)
    assert kinds(now, before) == [Kind.APART if invalid else Kind.NEW]


def test_other_tests_and_other_calls_are_new() -> None:
    baseline = kept(plain(1.0), plain(1.0))
    other = kept(plain(9.0), test="test_b.py::test")[0]
    third = kept(plain(), plain(), plain(9.0))[2]
    for one in other, third:
        (found,) = baselines.compare(one, baseline)
        assert (found.kind, found.text) == (Kind.NEW, "the baseline has none of it")


def test_a_finding_says_both_numbers() -> None:
    (found,) = baselines.compare(kept(plain(3.0))[0], kept(plain(1.0)))
    assert str(found) == (
        "contestant, eager: 3 (2.91 to 3.09) ms now, 1 (0.97 to 1.03) ms in the baseline: "
        "x3 the time, x2.83 for certain"
    )


# the file


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    benchmarks = kept(plain(1.0), plain(2.0, why="too hot"))
    baselines.write(path, benchmarks)
    assert baselines.load(path) == benchmarks
    assert json.loads(path.read_text()) == baselines.document(benchmarks)
    assert [one.name for one in tmp_path.iterdir()] == ["base.json"]


def test_no_file_is_no_baseline(tmp_path: Path) -> None:
    assert baselines.load(tmp_path / "none.json") is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no benchmarks"),
        ("[]", "holds no benchmarks"),
        ('{"format": "pytest-remotegpu/benchmarks", "version": 1}', "holds no benchmarks"),
        (
            '{"format": "pytest-remotegpu/benchmarks", "version": 2, "benchmarks": []}',
            "in version 2, not 'pytest-remotegpu/benchmarks' in 1; write it anew",
        ),
        ('{"format": "other", "version": 1, "benchmarks": []}', "is 'other' in version 1"),
        ("\xff", "holds no benchmarks"),
        pytest.param(f'{{"x": {"[" * 100_000}{"]" * 100_000}}}', "holds no benchmarks", id="deep"),
    ],
)
def test_what_is_no_baseline_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "base.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=complaint):
        baselines.load(path)


def test_a_folder_is_no_baseline(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        baselines.load(tmp_path)


def test_a_file_stays_where_it_can_not_be_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    baselines.write(path, kept(plain(1.0)))
    before = path.read_bytes()
    bad = kept(plain(1.0))[0]
    bad.benchmark.environment["note"] = float("nan")
    with pytest.raises(ValueError, match="JSON"):
        baselines.write(path, [bad])
    assert path.read_bytes() == before
    assert len([*tmp_path.iterdir()]) == 1


def test_threads_that_nobody_uses_are_not_compared() -> None:
    """A warm worker has torch there, and a plain session has it not where no test imports it."""

    def on(threads: int | None) -> dict[str, Any]:
        return plain(mode=Mode.WALL, threads=threads)

    assert kinds(on(None), on(2)) == kinds(on(2), on(None)) == [Kind.SAME]
    assert kinds(on(1), on(2)) == [Kind.APART]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_torchs_version_is_told_whether_it_was_imported_or_not() -> None:
    told = "from pytest_remotegpu.bench.surroundings import of_host; print(of_host('')['torch'])"
    found = [
        subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, timeout=100, check=True
        ).stdout
        for text in (told, f"import torch; {told}")
    ]
    assert found[0] == found[1] != "None\n"
