"""Curves as files: a CSV always, a picture where matplotlib is installed."""

from __future__ import annotations

import csv
import importlib.util
import math
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_remotegpu.diagnostics import Curve, Verdict, curves

CURVE = Curve("overfit", {"one sample": (4.5, 0.25, 1e-9), "batch": (3.0,)})
needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


def test_table_has_a_column_for_each_series(tmp_path: Path) -> None:
    curves.write(CURVE, tmp_path / "new" / "folder")
    with (tmp_path / "new" / "folder" / "overfit.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines))
    assert rows == [
        ["step", "one sample", "batch"],
        ["0", "4.5", "3.0"],
        ["1", "0.25", ""],
        ["2", "1e-09", ""],
    ]


@needs_matplotlib
@pytest.mark.parametrize(
    "curve",
    [
        CURVE,
        Curve("nothing"),
        Curve("bad", {"a": (math.nan, math.inf, 1.0)}),
        Curve("zero", {"a": (0.0, 1e6)}),
        Curve("\u4f60\u597d", {"\u4f60\u597d": (1.0, 2.0)}),
    ],
    ids=lambda curve: ascii(curve.name),
)
def test_picture_is_drawn_of_any_curve(curve: Curve, tmp_path: Path) -> None:
    table, picture = curves.write(curve, tmp_path)
    assert (table.suffix, picture.suffix) == (".csv", ".png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([table.name, picture.name])


@needs_matplotlib
def test_drawing_touches_no_pyplot() -> None:
    program = (
        "import sys, tempfile; from pytest_remotegpu.diagnostics import Curve, curves;"
        "curves.write(Curve('c', {'a': (1.0, 2.0)}), tempfile.mkdtemp());"
        "print('matplotlib.figure' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["True", "False"]


def test_without_matplotlib_there_is_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it could not be found
    assert [path.name for path in curves.write(CURVE, tmp_path)] == ["overfit.csv"]


@pytest.mark.parametrize(
    ("name", "file"),
    [("../../up", "up.csv"), ("a b/c", "a-b-c.csv"), ("..", "curve.csv"), ("", "curve.csv")],
)
def test_no_name_leads_out_of_the_folder(name: str, file: str, tmp_path: Path) -> None:
    table = curves.write(Curve(name, {"a": (1.0,)}), tmp_path / "in")[0]
    assert table == tmp_path / "in" / file
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_verdict_saves_its_curves_as_artifacts(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from pytest_remotegpu.diagnostics import Curve, Verdict

        @pytest.mark.gpu
        def test_it(artifacts_dir):
            Verdict("c", curves=(Curve("loss", {"a": (1.0, 0.5)}),)).save(artifacts_dir)
    """)
    result = pytester.runpytest_subprocess("--remote=local:cpu", "--remote-artifacts=kept")
    result.assert_outcomes(passed=1)
    (table,) = (pytester.path / "kept").rglob("loss.csv")
    assert table.read_text(encoding="utf-8").splitlines() == ["step,a", "0,1.0", "1,0.5"]


def test_no_curves_are_no_files(tmp_path: Path) -> None:
    assert Verdict("c").save(tmp_path) == ()
