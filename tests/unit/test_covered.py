"""What workers say has run: nothing but Python files of the project's, and numbers that can be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_remotegpu.covered import LARGEST, Covered
from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import to_text

coverage = pytest.importorskip("coverage", reason="needs coverage: pip install coverage")


def told(path: Path | str, *numbers: int, arcs: bool = False) -> events.Covered:
    return events.Covered(to_text(str(path)), list(numbers), arcs)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Have a project with a file, and one beside it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "lib.py").write_text("a = 1\nb = 2\n")
    (folder / "key.pem").write_text("secret")
    (tmp_path / "outside.py").write_text("a = 1\n")
    return folder


def added(
    root: Path, *said: events.Covered, branch: bool = False, relative: bool = False
) -> dict[str, list[object]]:
    """Give what is in a measurement's data after all that was said, by the name or path there."""
    covered = Covered([str(root)], lambda: True)
    for event in said:
        covered.take(event)
    before = coverage.Coverage.current()
    if before is not None:
        before.stop()
    cov = coverage.Coverage(data_file=None, config_file=False, branch=branch, messages=False)
    cov.set_option("run:disable_warnings", ["no-data-collected"])
    cov.set_option("run:relative_files", relative)
    cov.start()
    try:
        covered.close(contexts=False)
    finally:
        cov.stop()
        if before is not None:
            before.start()
    data = cov.get_data()
    found: dict[str, list[object]] = {}
    for path in map(Path, data.measured_files()):
        lines = data.arcs(str(path)) if branch else data.lines(str(path))
        if path.is_relative_to(root.parent):
            found[path.name] = sorted(lines)
        elif not path.is_absolute() and (root / path).is_file():
            found[f"./{path}"] = sorted(lines)
    return found


def test_lines_of_all_workers(root: Path) -> None:
    lib = root / "lib.py"
    assert added(root, told(lib, 1), told(lib, 2, 1)) == {"lib.py": [1, 2]}


def test_arcs(root: Path) -> None:
    found = added(root, told(root / "lib.py", -1, 1, 1, 2, arcs=True), branch=True)
    assert found == {"lib.py": [(-1, 1), (1, 2)]}


@pytest.mark.parametrize("branch", [False, True])
def test_file_of_which_nothing_ran(root: Path, *, branch: bool) -> None:
    (root / "bare.py").write_text("a = 1\n")
    ran = told(root / "lib.py", 1, 2, arcs=branch)
    found = added(root, told(root / "bare.py", arcs=branch), ran, branch=branch)
    assert (found["bare.py"], set(found)) == ([], {"bare.py", "lib.py"})


@pytest.mark.parametrize("branch", [False, True])
def test_only_files_of_which_nothing_ran(root: Path, *, branch: bool) -> None:
    assert added(root, told(root / "lib.py", arcs=branch), branch=branch) == {}


def test_names_relative_to_the_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    assert added(root, told(root / "lib.py", 1), relative=True) == {"./lib.py": [1]}


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX links")
def test_files_that_no_report_may_show(root: Path) -> None:
    (root / "up.py").symlink_to(root.parent / "outside.py")
    paths: list[Path | str] = [root.parent / "outside.py"]
    paths += [root / name for name in ("key.pem", "none.py", "up.py")]
    odd = [f"{root}/../outside.py", "lib.py", "", f"{root}/lib.py\0"]
    assert added(root, *(told(path, 1) for path in [*paths, *odd])) == {}


@pytest.mark.parametrize(
    "event",
    [told("/lib.py", LARGEST + 1), told("/lib.py", 1, 2, 3, arcs=True)],
    ids=["large", "odd"],
)
def test_numbers_that_can_not_be(root: Path, event: events.Covered) -> None:
    with pytest.raises(ProtocolError, match="that no file can have"):
        Covered([str(root)], lambda: True).take(event)


def test_nobody_has_asked(root: Path) -> None:
    with pytest.raises(ProtocolError, match="nobody has asked"):
        Covered([str(root)], lambda: False).take(told(root / "lib.py", 1))
