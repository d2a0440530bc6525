"""What a sweep is to measure: defaults, files, words, and what is said of what can't be meant."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_remotegpu.bench.fa2 import checks, columns, sweep
from pytest_remotegpu.bench.fa2.rows import Branch, Direction, Regime
from pytest_remotegpu.bench.fa2.sweep import Shape, Sweep
from pytest_remotegpu.errors import UsageError


def test_the_usual_sweep() -> None:
    problems = Sweep().problems()
    sliding = [one for one in problems if one.branch is Branch.SLIDING]
    compressed = [one for one in problems if one.branch is Branch.COMPRESSED]
    assert [(one.length, one.window) for one in sliding] == [
        (length, window) for length in (256, 512, 1024) for window in (32, 64, 128, 256)
    ]
    assert [(one.length, one.block, one.stride) for one in compressed] == [
        (256, 32, 16),
        (512, 32, 16),
        (1024, 32, 16),
    ]
    for one in problems:
        assert (one.batch, one.groups, one.heads) == (1, 2, 2)
        assert (one.width, one.value_width, one.dtype) == (64, 64, "float16")
        assert one.direction is Direction.FORWARD
    assert Sweep().margin == 1.2
    assert Sweep().regimes == tuple(Regime)


def test_names_of_columns_are_those_that_there_are() -> None:
    assert set(checks.NAMES) == set(columns.BUILT_IN)
    assert set(sweep.COLUMNS) <= set(checks.NAMES)


def test_all_combinations_are_measured() -> None:
    one = Sweep(
        lengths=(64, 128),
        windows=(8, 16, 32),
        compressed_lengths=(64,),
        blocks=((16, 8), (32, 16)),
        shapes=(Shape(), Shape(heads=8)),
        directions=tuple(Direction),
        dtypes=("float16", "bfloat16"),
    )
    assert len(set(one.problems())) == 2 * 2 * 2 * (2 * 3 + 2)
    for series in one.series():
        assert len({(problem.dtype, problem.direction, problem.heads) for problem in series}) == 1
    only = sweep.changed(one, ["branches=compressed"])
    assert {problem.branch for problem in only.problems()} == {Branch.COMPRESSED}


# files


FILE = """
lengths = [1024, 2048]
windows = [64]
branches = ["sliding"]
dtypes = ["bfloat16"]
directions = ["forward", "backward"]
shapes = [{ groups = 4, heads = 2, width = 128 }, { width = 192, value-width = 128 }]
columns = ["masked", "fa2", "mine"]
margin = 1.5
repetitions = 3

[further]
mine = "ours.kernels:attention"
"""


def test_a_file_says_what_to_measure(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(FILE, encoding="utf-8")
    found = sweep.read(path)
    assert (found.lengths, found.windows) == ((1024, 2048), (64,))
    assert found.shapes == (Shape(1, 4, 2, 128, 128), Shape(1, 2, 2, 192, 128))
    assert found.further == {"mine": "ours.kernels:attention"}
    assert found.names == ("masked", "fa2", "mine")
    assert (found.margin, found.repetitions, found.rounds) == (1.5, 3, Sweep().rounds)
    table = tmp_path / "pyproject.toml"
    lines = FILE.replace("[further]", "[tool.remotegpu.fa2.further]")
    table.write_text(f"[project]\nname = 'x'\n\n[tool.remotegpu.fa2]{lines}", encoding="utf-8")
    assert sweep.read(table) == found
    assert sweep.from_plain(found.to_plain()) == found


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("sweep.toml", None, "can't be read: No such file"),
        ("sweep.toml", "lengths = [", "is no TOML"),
        ("pyproject.toml", "[tool.remotegpu]\n", "has no table [tool.remotegpu.fa2]"),
        ("sweep.toml", "[tool.remotegpu]\nfa2 = 3\n", "which is no table of keys"),
        ("sweep.toml", "length = [3]\n", "unknown key 'length'; did you mean 'lengths'?"),
        ("sweep.toml", "xyz = 3\n", "unknown key 'xyz'; take of branches, lengths"),
    ],
)
def test_a_file_that_can_not_be_meant(
    name: str, text: str | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        sweep.read(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


# values


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("lengths", [], "lengths of the sweep is empty"),
        ("lengths", 256, "lengths of the sweep is 256, which is no list"),
        ("lengths", [256, 0], "lengths of the sweep has 0; give a whole number from 1"),
        ("lengths", [256, True], "has True"),
        ("lengths", [256.0], "has 256.0"),
        ("lengths", [2**25], "has 33554432"),
        ("lengths", [256, 512, 256], "has 256 twice"),
        ("windows", [0], "windows of the sweep has 0"),
        ("windows", [-3], "has -3"),
        ("blocks", [], "blocks of the sweep is empty"),
        ("blocks", [[32]], "has [32]; give a pair [block, stride]"),
        ("blocks", [[32, 0]], "blocks of the sweep has 0"),
        ("blocks", [[32, 16], [32, 16]], "has (32, 16) twice"),
        ("compressed-lengths", [16], "shorter than a block of 32"),
        ("shapes", [], "shapes of the sweep is empty"),
        ("shapes", [3], "has 3; give a table"),
        ("shapes", [{"width": 60}], "width in shapes of the sweep has 60; give a head's width"),
        ("shapes", [{"width": 264}], "a multiple of 8 from 8 to 256"),
        ("shapes", [{"value-width": 0}], "value-width in shapes of the sweep has 0"),
        ("shapes", [{"heads": 0}], "heads in shapes of the sweep has 0"),
        ("shapes", [{"head": 2}], "has 'head'; give a key of batch, groups, heads, width"),
        ("shapes", [{}, {"heads": 2}], "twice"),
        ("directions", ["back"], "has 'back'; give words of forward, backward"),
        ("dtypes", ["float32"], "has 'float32'; give words of float16, bfloat16"),
        ("dtypes", "float16", "which is no list"),
        ("regimes", ["fast"], "give words of eager, device"),
        ("branches", [3], "has 3; give a word"),
        ("columns", ["maskd"], "columns of the sweep has 'maskd', which is none; take of masked"),
        ("columns", ["fa2", "fa2"], "has 'fa2' twice"),
        ("further", {"mine": "ours"}, "has 'ours'; give module:function"),
        ("further", {"mine": "a..b:c"}, "has 'a..b:c'"),
        ("further", {"masked": "a:b"}, "has ['masked'], which are names of ours"),
        ("further", ["a:b"], "give a table such as"),
        ("margin", 0, "margin of the sweep has 0; give a positive number"),
        ("margin", float("nan"), "has nan"),
        ("margin", "1.2", "has '1.2'; give a number"),
        ("repetitions", 0, "repetitions of the sweep has 0"),
        ("rounds", 4, "rounds of the sweep has 4; give a whole number from 5"),
        ("warmup", -1, "warmup of the sweep has -1"),
        ("seed", 0.5, "seed of the sweep has 0.5"),
    ],
)
def test_a_value_that_can_not_be_meant(key: str, value: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        sweep.from_plain({key: value})
    assert said in str(caught.value)


# words


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("lengths=256,512", "lengths", [256, 512]),
        ("lengths = 256", "lengths", [256]),
        ("dtypes=bfloat16", "dtypes", ["bfloat16"]),
        ("blocks=[[16, 8], [32, 16]]", "blocks", [[16, 8], [32, 16]]),
        ("margin=1.5", "margin", 1.5),
        ("rounds=9", "rounds", 9),
        ("columns=masked,'fa2'", "columns", ["masked", "fa2"]),
        ("further={ mine = 'ours:it' }", "further", {"mine": "ours:it"}),
    ],
)
def test_words_change_a_sweep(word: str, key: str, value: Any) -> None:
    found = sweep.changed(Sweep(), [word]).to_plain()
    assert found[key] == value
    assert {**found, key: 0} == {**Sweep().to_plain(), key: 0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lengths"], "'lengths' is no KEY=VALUE"),
        (["lengths="], "lengths of the command line has ''"),
        (["lengths=1", "lengths=2"], "lengths is given twice"),
        (["blocks=[[1, 2]"], "no TOML value"),
        (["speed=3"], "the command line has the unknown key 'speed'"),
        (["rounds=five"], "rounds of the command line has 'five'"),
    ],
)
def test_words_that_can_not_be_meant(words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        sweep.changed(Sweep(), words)
    assert said in str(caught.value)


@given(
    st.lists(st.integers(1, 9999), min_size=1, unique=True),
    st.lists(st.sampled_from(["float16", "bfloat16"]), min_size=1, unique=True),
    st.integers(1, 9),
    st.sampled_from([8, 64, 128, 256]),
)
@settings(deadline=None)
def test_what_was_written_is_read_again(
    lengths: list[int], dtypes: list[str], heads: int, width: int
) -> None:
    plain = {
        "lengths": lengths,
        "dtypes": dtypes,
        "shapes": [{"heads": heads, "width": width, "value-width": 64}],
    }
    found = sweep.from_plain(plain)
    assert sweep.from_plain(found.to_plain()) == found
    assert found.lengths == tuple(lengths)


def test_a_sweep_is_read_without_torch() -> None:
    """It is looked at where there may be none, before anything is rented."""
    code = (
        "import sys; from pytest_remotegpu.bench.fa2 import sweep; sweep.Sweep().problems(); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
