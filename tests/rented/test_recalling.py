"""A look at tests that only a container can collect: what one told last, while that still holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from loopback import LoopbackModal
from session.running import run, said

FAR = ("--remote=modal:T4", "-o", "remotegpu_collect=far")
TEST = """
    import json, os, pathlib, pytest
    import helper
    if "MODAL_TASK_ID" not in os.environ: raise ImportError("needs a container")

    pytestmark = pytest.mark.far
    HERE = pathlib.Path(__file__).parent

    @pytest.mark.gpu
    @pytest.mark.parametrize("case", json.loads((HERE / "cases.json").read_text()))
    def test_case(case): pass

    class TestMore:
        pytestmark = pytest.mark.slow

        @pytest.mark.gpu
        @pytest.mark.parametrize("number", helper.NUMBERS)
        def test_number(self, number): pass
"""
ALL = [
    "test_far.py::test_case[a]",
    "test_far.py::test_case[b]",
    "test_far.py::TestMore::test_number[1]",
]
NOTE = "still the same here: test_far.py"


EXCLUDED = "remotegpu_env = CASES\nremotegpu_exclude =\n    std*\n    runpytest-*"
CONFTEST = """
    import pathlib
    def pytest_addoption(parser):
        parser.addoption("--model", type=pathlib.Path, default=pathlib.Path("one"))
        parser.addoption("--odd", type=lambda text: type("Odd", (), {})(), default=None)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, service: LoopbackModal) -> LoopbackModal:
    """Have a project whose tests were run once; pytester writes what a session says into it."""
    pytester.makeini("[pytest]\nmarkers =\n    slow\n    far\n" + EXCLUDED)
    pytester.makefile(".ini", b="[pytest]\npython_functions = check_*\n" + EXCLUDED)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(plug="", test_far=TEST, helper="NUMBERS = [1]", other="", test_other=OTHER)
    Path("cases.json").write_text(json.dumps(["a", "b"]))
    run(pytester, *FAR).assert_outcomes(passed=4)
    return service


OTHER = """
    import os, pytest
    if "MODAL_TASK_ID" not in os.environ: raise ImportError("needs a container")
    @pytest.mark.gpu
    def test_other(): pass
"""


def looked(pytester: pytest.Pytester, *args: str) -> tuple[list[str], str]:
    """Give the ids that a look shows of the first file, and all that it writes."""
    text = said(run(pytester, *FAR, "--collect-only", "-q", *args))
    return [line for line in text.splitlines() if line.startswith("test_far.py::")], text


def test_a_look_shows_what_was_collected(pytester: pytest.Pytester, project: LoopbackModal) -> None:
    """It rents nothing, ever: what chooses among the tests chooses among these."""
    asked = len(project.inputs)
    found, text = looked(pytester)
    assert found == ALL
    assert NOTE in text
    assert looked(pytester, "-k", "Case or number")[0] == ALL
    assert looked(pytester, "test_far.py::TestMore")[0] == ALL[2:]
    assert looked(pytester, "-m", "slow")[0] == ALL[2:]
    assert looked(pytester, "-m", "far")[0] == ALL
    assert looked(pytester, "--remote-plan")[1].count("test_far.py::") >= 3
    assert len(project.inputs) == asked


def change_helper() -> None:
    Path("helper.py").write_text("NUMBERS = [1, 2]")


def change_data() -> None:
    Path("cases.json").write_text(json.dumps(["a"]))


def change_test() -> None:
    with Path("test_far.py").open("a") as file:
        file.write("\n")


def add_conftest() -> None:
    Path("folder").mkdir()
    Path("folder/conftest.py").write_text("")


def add_file() -> None:
    Path("more.txt").write_text("")


def add_requirement() -> None:
    Path("requirements.txt").write_text("# none\n")


CHANGES = [change_helper, change_data, change_test, add_conftest, add_file, add_requirement]


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_nothing_is_shown_that_may_have_changed(
    pytester: pytest.Pytester, change: Callable[[], None]
) -> None:
    change()
    found, text = looked(pytester)
    assert found == []
    assert "not collected: test_far.py" in text


@pytest.mark.usefixtures("project")
def test_what_a_file_does_not_need_may_change(pytester: pytest.Pytester) -> None:
    """Neither another file of tests, nor one that collection has not read, says of it."""
    Path("other.py").write_text("x = 1")
    with Path("test_other.py").open("a") as file:
        file.write("\n")
    found, text = looked(pytester)
    assert found == ALL
    assert "not collected: test_other.py" in text


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    "args",
    [
        ["--remote=modal:A100"],
        ["--doctest-modules"],
        ["-p", "no:cacheprovider"],
        ["-p", "plug"],
        ["-c", "b.ini"],
        ["--model=two"],
        ["--odd=x"],
    ],
    ids=["card", "option", "no_cache", "plugin", "ini", "path", "odd"],
)
def test_nothing_is_shown_to_another_question(pytester: pytest.Pytester, args: list[str]) -> None:
    assert looked(pytester, *args)[0] == []


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("name", ["CASES", "PYTEST_PLUGINS"])
def test_nothing_is_shown_to_other_variables(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Those that the far side gets, and what they load here."""
    monkeypatch.setenv("OTHER", "x")
    assert looked(pytester)[0] == ALL
    monkeypatch.setenv(name, "plug")
    assert looked(pytester)[0] == []


@pytest.mark.usefixtures("project")
def test_nothing_is_shown_elsewhere(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose tests open files by relative paths."""
    Path("empty").mkdir()
    monkeypatch.chdir("empty")
    assert looked(pytester, "..")[0] == []


@pytest.mark.usefixtures("project")
def test_a_cache_that_is_broken_shows_nothing(pytester: pytest.Pytester) -> None:
    kept = list(Path(".pytest_cache/d/remotegpu-collected").iterdir())
    assert len(kept) == 2
    for number, path in enumerate(kept):
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] if number else b"\xc1" + data)
    found, text = looked(pytester)
    assert found == []
    assert "not collected: test_far.py" in text


def test_a_run_asks_again(pytester: pytest.Pytester, project: LoopbackModal) -> None:
    """What was collected last decides nothing in a run."""
    asked = len(project.inputs)
    run(pytester, *FAR, "test_far.py").assert_outcomes(passed=3)
    assert len(project.inputs) == asked + 1


@pytest.mark.usefixtures("service")
def test_a_file_that_failed_is_not_kept(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_far="import pytest\n@pytest.mark.gpu\ndef test(): pass\n1 / 0")
    run(pytester, *FAR).assert_outcomes(errors=1)
    assert looked(pytester)[0] == []
