"""The far side imports the files that plain pytest would, and in its order."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from session.running import CPU, run, said

NOTING = """
    import os
    import pytest

    if os.environ.get("ONLY_THERE") and "REMOTEGPU_WORKER" not in os.environ:
        raise ImportError("not here")

    with open(os.environ["IMPORTED"], "a") as file:
        print(__file__, file=file)
"""
MARKED = NOTING + "\n    @pytest.mark.gpu\n    def test_it(): pass\n"
PLAIN = NOTING + "\n    def test_it(): pass\n"
TREE = (
    "b/test_m.py",
    "b/c/test_n.py",
    "package/__init__.py",
    "package/a/test_o.py",
    "package/test_first.py",
    "test_a.py",
    "test_z.py",
    "zz/test_p.py",
)
IMPORTS = ("--import-mode=importlib", "-o", "python_files=test_*.py __init__.py")


@pytest.fixture
def imported(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the file into which test files write that they are imported."""
    path = pytester.path / "imported"
    monkeypatch.setenv("IMPORTED", str(path))
    pytester.makeini("[pytest]\n")
    return path


def write(pytester: pytest.Pytester, text: str, *names: str) -> None:
    """Write test files of the same text."""
    for name in names:
        (pytester.path / name).parent.mkdir(parents=True, exist_ok=True)
        pytester.makepyfile(**{name.removesuffix(".py"): text})


def orders(
    pytester: pytest.Pytester, imported: Path, *args: str, far: tuple[str, ...] = ()
) -> list[list[str]]:
    """Give what is imported, by plain pytest and with far collection, and in which order."""
    found = []
    for options in (("-p", "no:remotegpu"), (CPU, *far)):
        imported.unlink(missing_ok=True)
        run(pytester, *options, *args)
        found.append(imported.read_text().splitlines() if imported.exists() else [])
    return found


def test_a_name_that_two_files_have_is_an_error_of_the_same_one(
    pytester: pytest.Pytester, imported: Path
) -> None:
    write(pytester, MARKED, "test_a.py", "sub/test_a.py")
    plain, far = orders(pytester, imported)
    assert plain == far == [str(pytester.path / "sub" / "test_a.py")]
    assert "ERROR test_a.py" in said(run(pytester, CPU))


OVERLAPPING = pytest.param(
    ("b/c", "zz", "b", "test_z.py", "package/a"),
    marks=pytest.mark.skipif(
        pytest.version_tuple < (9,), reason="before pytest 9, `b` after `b/c` misses files of b"
    ),
)


@pytest.mark.parametrize("args", [(), ("zz", "b", "test_z.py", "package/a"), OVERLAPPING])
def test_files_and_folders_are_imported_in_one_order(
    pytester: pytest.Pytester, imported: Path, args: tuple[str, ...]
) -> None:
    write(pytester, MARKED, *TREE)
    plain, far = orders(pytester, imported, *IMPORTS, *args)
    assert far == plain != []


def test_files_without_the_mark_are_imported_among_the_others(
    pytester: pytest.Pytester, imported: Path
) -> None:
    write(pytester, MARKED, *TREE[1::2])
    write(pytester, PLAIN, *TREE[::2])
    plain, far = orders(pytester, imported, *IMPORTS, far=("--remote-all",))
    assert far == plain != []


@pytest.mark.parametrize(
    "args",
    [
        ("--ignore=b", "--ignore-glob=*_z.py"),
        ("--ignore-glob=*/b/*", "--collect-in-virtualenv"),
    ],
    ids=" ".join,
)
def test_what_options_leave_out_is_not_imported(
    pytester: pytest.Pytester,
    imported: Path,
    args: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(pytester, MARKED, *TREE)
    (pytester.path / "zz" / "pyvenv.cfg").touch()
    (pytester.mkdir("b/conda-meta") / "other").touch()
    plain, _ = orders(pytester, imported, *IMPORTS, *args)
    monkeypatch.setenv("ONLY_THERE", "yes")
    imported.unlink()
    result = run(pytester, CPU, *IMPORTS, *args)
    assert result.ret == 0, said(result)
    assert imported.read_text().splitlines() == plain != []


@pytest.mark.parametrize("where", [CPU, "--remote=command:env PYTEST_REMOTEGPU_PRETEND_GPUS=1"])
def test_folders_that_are_links(
    pytester: pytest.Pytester, imported: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """They lead out of the folder, and into it again: as far as the system lets pytest go."""
    write(pytester, MARKED, "real/test_it.py")
    pytester.mkdir("deep").joinpath("link").symlink_to("../real")
    (pytester.path / "real" / "loop").symlink_to(".")
    (pytester.path / "real" / "dangling").symlink_to("nowhere")
    plain = run(pytester, "-p", "no:remotegpu").parseoutcomes()["passed"]
    imported.unlink()
    monkeypatch.setenv("ONLY_THERE", "yes")
    far = run(pytester, where, "-o", f"remotegpu_python={sys.executable}")
    assert far.parseoutcomes()["passed"] == plain > 2


def test_loops_that_multiply_end(pytester: pytest.Pytester, imported: Path) -> None:
    """Pytest itself never goes there, by a conftest that this side has not read yet."""
    write(pytester, MARKED, "a/test_it.py", "a/loops/test_more.py")
    for name in "xyz":
        (pytester.path / "a" / "loops" / name).symlink_to(".")
    (pytester.path / "a" / "conftest.py").write_text("collect_ignore = ['loops']\n")
    plain, far = orders(pytester, imported)
    assert plain == [str(pytester.path / "a" / "test_it.py")]
    assert plain[0] in far
    run(pytester, CPU).assert_outcomes(passed=1)
