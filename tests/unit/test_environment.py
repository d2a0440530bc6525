"""Which variables and which import path entries a far side gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_remotegpu.environment import (
    ALWAYS,
    child_path,
    inside,
    interpreter_options,
    passed_on,
    redirected,
    sources,
)

ENVIRON = {
    "HF_TOKEN": "s3cret",
    "HF_HOME": "/hf",
    "NCCL_ALGO": "Ring",
    "nccl_debug": "x",
    "HOME": "/h",
}


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ([], set()),
        (["HF_TOKEN"], {"HF_TOKEN"}),
        (["HF_*"], {"HF_TOKEN", "HF_HOME"}),
        (["NCCL_ALGO", "HOME"], {"NCCL_ALGO", "HOME"}),
        (["H[F]_TOKE?"], {"HF_TOKEN"}),
        (["TOKEN", "F_TOKEN", "HF_"], set()),
        (["ABSENT"], set()),
    ],
)
def test_only_what_is_named_is_passed_on(patterns: list[str], names: set[str]) -> None:
    assert passed_on(ENVIRON, patterns) == {name: ENVIRON[name] for name in names}


def test_what_changes_pytest_itself_always_goes() -> None:
    environ = dict.fromkeys(ALWAYS, "1") | {"PYTEST_REMOTEGPU": "local:cpu", "PATH": "/bin"}
    assert set(passed_on(environ, [])) == set(ALWAYS)
    assert {"PYTEST_ADDOPTS", "PYTHONHASHSEED", "NCCL_DEBUG", "TORCH_DISTRIBUTED_DEBUG"} <= set(
        ALWAYS
    )


def test_the_variables_are_copied() -> None:
    environ = {"CI": "1"}
    passed_on(environ, [])["CI"] = "2"
    assert environ == {"CI": "1"}


def test_path_entries_of_the_project_alone() -> None:
    root = Path("/work/project")
    paths = [
        "",
        "/work/project",
        "/work/project/src",
        "/work/project-two",
        "/work",
        "/usr/lib/python3.12",
        "/work/project/.venv/lib/python3.12/site-packages",
        "/work/project/.venv/lib/python3/dist-packages",
        "relative",
    ]
    assert inside(paths, root) == ["/work/project", "/work/project/src"]


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("python", ""),
        ("python -m pytest -x -W error", ""),
        ("python -c pass -bb", ""),
        ("python test.py -O", ""),
        ("python -", ""),
        ("python -- -O", ""),
        ("python -W error -bb -m pytest", "-W error -b -b"),
        ("python -Werror::BytesWarning -m pytest -Wignore", "-W error::BytesWarning"),
        ("python -OOsm pytest", "-O -O -s"),
        ("python -buvqW once -Xdev -X utf8=0 x.py", "-b -W once -X dev -X utf8=0"),
        ("python -IES -P -B -d -mpytest", "-I -E -S -P -B -d"),
        ("python --check-hash-based-pycs always -O -m pytest", "--check-hash-based-pycs always -O"),
        ("python -X", "-X "),
        ("python -u -c x", ""),
    ],
)
def test_options_of_the_interpreter(line: str, kept: str) -> None:
    assert " ".join(interpreter_options(line.split())) == kept


class Finder:
    """A finder as build tools leave it in ``sys.meta_path``."""

    def __init__(self, **tables: object) -> None:
        vars(self).update(tables)


def test_import_hooks_of_editable_installs_are_read() -> None:
    class Hook:
        """What setuptools registers is the class itself."""

    class Beside:
        MAPPING = {"one": "/p/src/one", "odd": 3}  # noqa: RUF012 -- a stand-in for a module

    redirecting = Finder(_redirections={"two": "/p/two/__init__.py", "three": "/p/three.py"})
    scikit = Finder(known_source_files={"four": "/p/py/four/__init__.py", "four.deep": "/p/x.py"})
    found = redirected([Hook, redirecting, scikit, Finder(), object()], {__name__: Beside})
    assert found == {
        "one": "/p/src/one",
        "two": "/p/two/__init__.py",
        "three": "/p/three.py",
        "four": "/p/py/four/__init__.py",
    }


def test_what_a_hook_serves_becomes_entries_of_the_import_path() -> None:
    table = {
        "one": "/p/src/one", "two": "/p/two/__init__.py", "three": "/p/three.py",
        "renamed": "/p/python", "outside": "/q/outside",
    }  # fmt: skip
    assert sources(table, Path("/p")) == (["/p/src", "/p"], ["renamed"])


def test_further_interpreters_have_neither_the_programs_folder_nor_what_pytest_adds(
    tmp_path: Path,
) -> None:
    names = ("tests", "src", "lib", "plugin")
    tests, source, lib, plugin = (str(tmp_path / name) for name in names)
    path = [str(tmp_path), tests, source, "/usr/lib/python3", lib, "/usr/lib/site-packages"]
    given = os.pathsep.join([source, "", "plugin", "/elsewhere"])
    found = child_path(path, given, str(tmp_path), [tmp_path], stdlib="/usr/lib/python3")
    assert found == [source, ".", "plugin", lib]
    unset = child_path(path, "", str(tmp_path), [tmp_path], stdlib="/usr/lib/python3")
    assert unset == [lib]
    assert child_path(path[:3], "", "/", [tmp_path], stdlib="/usr/lib/python3") == []
    assert plugin not in found
