"""Which files import which, which test files a change reaches, and what counts as a change."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.affected import affected_files
from pytest_remotegpu.changes import Project, is_noise
from pytest_remotegpu.imports import Graph, Needs, needs_of

Path_ = PurePosixPath


def graph(**sources: str) -> Graph:
    """Make the graph of files whose names have ``__`` for a slash, and no ending."""
    return Graph(files_of(**sources))


def files_of(**sources: str) -> dict[PurePosixPath, Needs | None]:
    """Read such files."""
    return {
        Path_(f"{name.replace('__', '/').replace('INIT', '__init__')}.py"): needs_of(text)
        for name, text in sources.items()
    }


def reached(found: Graph, *changed: str) -> list[str]:
    """List what changes reach."""
    return sorted(map(str, found.affected(map(Path_, changed))))


@pytest.mark.parametrize(
    "text",
    [
        "import kernels.scan",
        "import kernels.scan as scan",
        "from kernels import scan",
        "from kernels.scan import step",
        "from kernels.scan import *",
        "def late():\n    from kernels import scan",
        "try:\n    import kernels.scan\nexcept ImportError:\n    pass",
        "import importlib\nimportlib.import_module('kernels.scan')",
        "__import__('kernels.scan')",
        "import pytest\nscan = pytest.importorskip('kernels.scan')",
        "pytest_plugins = ['kernels.scan']",
        "pytest_plugins: list[str] = ['kernels.scan']",
        "pytest_plugins = 'kernels.scan'",
    ],
)
def test_ways_to_import(text: str) -> None:
    found = graph(
        src__kernels__INIT="", src__kernels__scan="", tests__test_a=text, tests__test_b=""
    )
    assert reached(found, "src/kernels/scan.py") == ["src/kernels/scan.py", "tests/test_a.py"]


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("from . import b", "p/q/b.py"),
        ("from .b import c", "p/q/b.py"),
        ("from .. import b", "p/b.py"),
        ("from ..b.c import d", "p/b/c.py"),
        ("from . import b", "p/q/b/__init__.py"),
        ("from .b import c", "p/q/b/c.py"),
    ],
)
def test_relative_imports(text: str, needed: str) -> None:
    found = Graph({Path_("p/q/a.py"): needs_of(text), Path_(needed): needs_of("")})
    assert "p/q/a.py" in reached(found, needed)


@pytest.mark.parametrize(
    "text",
    [
        "import importlib\nimportlib.import_module(name)",
        "__import__(f'kernels.{name}')",
        "pytest_plugins = find()",
        "import importlib\nimportlib.import_module('.scan', 'kernels')",
        "def broken(:",
        "\0",
    ],
)
def test_what_may_import_anything_is_always_affected(text: str) -> None:
    found = graph(a="", test_a=text, test_b="")
    assert reached(found, "a.py") == ["a.py", "test_a.py"]
    assert reached(found, "data.json") == ["data.json"]


def test_through_other_files_and_round_in_a_circle() -> None:
    found = graph(
        a="import b", b="import c", c="import a", d="", test_a="import a", test_d="import d"
    )
    assert reached(found, "c.py") == ["a.py", "b.py", "c.py", "test_a.py"]


def test_what_is_loaded_before_a_file() -> None:
    found = graph(
        conftest="", sub__conftest="import h", h="", sub__INIT="", sub__test_a="", test_b=""
    )
    assert {"sub/test_a.py", "test_b.py"} <= set(reached(found, "conftest.py"))
    assert "test_b.py" not in reached(found, "sub/conftest.py")
    assert "sub/test_a.py" in reached(found, "h.py")
    assert "sub/test_a.py" in reached(found, "sub/__init__.py")


def test_a_package_is_no_part_of_another_name() -> None:
    found = graph(scan="", rescan="", test_a="import rescan")
    assert reached(found, "scan.py") == ["scan.py"]


BEFORE = files_of(kernel="", test_a="import kernel", test_b="", tool="")
KNOWN = [Path_("test_a.py"), Path_("test_b.py"), Path_("doc.md")]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (["kernel.py"], ["test_a.py"]),
        (["test_b.py"], ["test_b.py"]),
        (["kernel.py", "test_b.py"], ["test_a.py", "test_b.py"]),
        (["doc.md"], ["doc.md"]),
        (["tool.py"], None),
        (["data.json"], None),
        (["test_b.py", "data.json"], None),
        ([], []),
    ],
)
def test_affected_files(changed: list[str], expected: list[str] | None) -> None:
    found = affected_files(map(Path_, changed), BEFORE, BEFORE, KNOWN)
    assert (found if found is None else sorted(map(str, found))) == expected


def test_before_and_after_both_count() -> None:
    after = files_of(kernel="", test_a="", test_b="import kernel", tool="")
    found = affected_files([Path_("kernel.py")], BEFORE, after, KNOWN)
    assert found == {Path_("test_a.py"), Path_("test_b.py")}


def test_a_new_test_file_makes_it_all() -> None:
    after = BEFORE | files_of(test_c="import kernel", helper="")
    assert affected_files([Path_("test_c.py")], BEFORE, after, KNOWN) is None
    after |= files_of(test_b="import helper")
    assert affected_files([Path_("helper.py")], BEFORE, after, KNOWN) == {Path_("test_b.py")}


@given(st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from("abcdef"))))
def test_all_who_need_a_file_are_reached(needs: dict[str, set[str]]) -> None:
    files = {Path_(f"{a}.py"): Needs(frozenset(bs)) for a, bs in needs.items()}
    found = Graph(files)
    for changed in needs:
        affected = {path.stem for path in found.affected([Path_(f"{changed}.py")])}
        for user, needed in needs.items():
            assert user in affected or not needed & affected & needs.keys()


@given(st.text(max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    assert isinstance(needs_of(text), Needs | None)


# what counts as a change


@pytest.mark.parametrize(
    "name",
    [
        "a.py~",
        ".git/index",
        "x/__pycache__/a.py",
        "4913",
        ".a.py.swp",
        ".#a.py",
        ".coverage.host.1",
    ],
)
def test_noise(name: str) -> None:
    assert is_noise(Path_(name))


@pytest.mark.parametrize("name", ["a.py", "x/b.json", ".env.example", "conftest.py", "git/a.py"])
def test_no_noise(name: str) -> None:
    assert not is_noise(Path_(name))


@pytest.mark.parametrize("checkout", [False, True])
def test_looks(tmp_path: Path, checkout: bool) -> None:
    if checkout:
        git = shutil.which("git")
        if git is None:
            pytest.skip("needs git")
        subprocess.run([git, "init", "-q"], cwd=tmp_path, check=True)
        (tmp_path / ".gitignore").write_text("ignored.py\n")
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "out").mkdir()
    project = Project(tmp_path, [tmp_path / "out"])
    assert Path_("a.py") in project.look()
    assert project.look() == set()
    (tmp_path / "a.py").write_text("2")
    (tmp_path / "b.py").write_text("1")
    (tmp_path / "out" / "c.py").write_text("1")
    (tmp_path / "ignored.py").write_text("1")
    assert project.look() == {Path_("a.py"), Path_("b.py")} | (
        set() if checkout else {Path_("ignored.py")}
    )
    (tmp_path / "a.py").touch()
    (tmp_path / "b.py").rename(tmp_path / "d.py")
    assert project.look() == {Path_("b.py"), Path_("d.py")}
    assert project.has(Path_("d.py"))
    assert not project.has(Path_("b.py"))
