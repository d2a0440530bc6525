"""What a failure lacks is read from its text, in whichever words a library puts it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.missing import argument_of, files_of, modules_of, paths_of

ROOT = "/far/trees/1-0/tree/proj"


@pytest.mark.parametrize(
    "line",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/x.bin'",
        f"FileNotFoundError: [Errno 2] No such file or directory: '{ROOT}/data/x.bin'",
        f"FileNotFoundError: {ROOT}/data/x.bin not found.",
        f"RuntimeError: Error opening '{ROOT}/data/x.bin': System error.",
        "OSError: Unable to open file (unable to open file: name = 'data/x.bin', errno = 2)",
        'RuntimeError: could not open "data/x.bin"',
        "ValueError: File data/x.bin does not exist.",
        f"AssertionError: assert False, where exists = PosixPath('{ROOT}/data/x.bin')",
        "AssertionError: where False = is_file(PosixPath('data/x.bin'))",
        f"RuntimeError: [enforce fail] . open file failed because of errno 2: {ROOT}/data/x.bin",
        f"cv2.error: can't open/read file://{ROOT}/data/x.bin: check file path/integrity",
    ],
)
def test_a_path_is_read(line: str) -> None:
    assert "data/x.bin" in files_of(f"def test():\n>   f()\nE   {line}\nt.py:1: E", ROOT, "proj")


def test_where_the_folder_is_not_known_its_name_serves() -> None:
    text = f"FileNotFoundError: No such file or directory: '{ROOT}/data/x.bin'"
    assert "data/x.bin" in files_of(text, "", "proj")


@pytest.mark.parametrize(
    ("line", "path"),
    [
        (f"ERROR: file or directory not found: {ROOT}/my tests/x y.py", "my tests/x y.py"),
        (f"file or directory not found: {ROOT}/x.py", "x.py"),
        ("ERROR: file or directory not found: /elsewhere/x.py", ""),
        ("ERROR: file or directory not found: x.py", ""),
        (f"ERROR: found no collectors for {ROOT}/x.py", ""),
        (f"E  file or directory not found: {ROOT}/x.py", ""),
        ("", ""),
    ],
)
def test_what_pytest_was_to_begin_with_is_read(line: str, path: str) -> None:
    assert argument_of(line, "proj") == path


def test_paths_of_other_folders_and_of_other_lines_are_not_meant() -> None:
    text = "with open('data/y.bin')\nE   FileNotFoundError: No such file: '/etc/none'"
    assert "data/y.bin" not in files_of(text, ROOT, "proj")
    assert all(not path.startswith("/") for path in files_of(text, ROOT, "proj"))
    assert files_of("E   AssertionError: assert 'data/a' == 'data/b'", ROOT, "proj") == []


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("ModuleNotFoundError: No module named 'pkg.gen'", "pkg.gen"),
        ("ModuleNotFoundError: No module named 'gen'; 'gen' is not a package", "gen"),
        ("ImportError: cannot import name 'gen' from 'pkg' (/x/pkg/__init__.py)", "pkg.gen"),
        (
            "ImportError: cannot import name 'gen' from partially initialized module 'pkg' (x)",
            "pkg.gen",
        ),
    ],
)
def test_a_module_is_read(line: str, module: str) -> None:
    assert modules_of(f"E   {line}") == [module]
    assert modules_of(line) == [module]


def test_a_module_may_lie_in_any_folder_and_be_of_any_form() -> None:
    assert list(paths_of("a.b", ["", "src"])) == [
        *("a.py", "a/__init__.py", "a", "a/b.py", "a/b/__init__.py", "a/b"),
        *("src/a.py", "src/a/__init__.py", "src/a", "src/a/b.py", "src/a/b/__init__.py", "src/a/b"),
    ]


@given(st.text(max_size=400), st.text(max_size=20), st.text(max_size=10))
def test_any_text_can_be_read(text: str, root: str, folder: str) -> None:
    for line in (text, f"E   {text}"):
        assert len(files_of(line, root, folder)) <= 50
        assert len(modules_of(line)) <= 50


def test_a_long_text_takes_no_time() -> None:
    """A second at the most, where a careless pattern would take hours."""
    assert files_of("E   no such file " + "a/" * 90_000 + "'" * 9, ROOT, "proj") is not None
