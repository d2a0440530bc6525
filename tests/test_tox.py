"""The environments of tox for GPU tests, here and as the page on CI gives them: what each selects.

Tox says what it would run; pytest is asked what that selects, and what comes of an empty choice.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from session.running import said

pytest.importorskip("tox", reason="tox is not installed")

ROOT = Path(__file__).parents[1]
NAMES = ("gpu", "gpu-tests", "gpu-single", "gpu-multi", "gpu-overfitting")
PATHS = "tests/", "examples/"
MARKED = """
    import pytest
    def test_plain(): pass
    @pytest.mark.gpu
    def test_one(): pass
    @pytest.mark.{several}
    def test_two(): pass
    @pytest.mark.{several}
    def test_overfits(): pass
"""


def commands(folder: Path) -> dict[str, list[str]]:
    """Give the options and paths that each environment of a tox.ini hands to pytest."""
    words = ["config", "-q", "-e", ",".join(NAMES), "-k", "commands"]
    done = subprocess.run(
        [sys.executable, "-m", "tox", "--root", str(folder), *words],
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    found = re.findall(r"^\[testenv:(.*)\]\ncommands = .*?pytest (.*)$", done.stdout, re.MULTILINE)
    return {name: shlex.split(line) for name, line in found}


def recipe(folder: Path) -> Path:
    """Lay out the files that the page on CI gives."""
    page = (ROOT / "docs" / "ci.md").read_text("utf-8").partition("\n## With tox\n")[2]
    for name, text in re.findall(r"<!-- file: (\S+) -->\n```ini\n(.*?)```", page, re.DOTALL)[:2]:
        (folder / name).write_text(text)
    return folder


def selected(pytester: pytest.Pytester, *args: str) -> set[str]:
    """Give the tests that pytest collects with these options."""
    result = pytester.runpytest_subprocess("--collect-only", "-q", *args, timeout=90)
    return set(re.findall(r"^\S+::(\S+)$", said(result), re.MULTILINE))


def test_what_this_projects_environments_select(pytester: pytest.Pytester) -> None:
    found = commands(ROOT)
    assert set(found) == set(NAMES)
    pytester.makepyfile(MARKED.format(several="gpu(count=2)"))
    options = {name: [w for w in words if not w.startswith(PATHS)] for name, words in found.items()}
    assert all("--gpu-required" in words for words in options.values())
    chosen = {name: selected(pytester, *words) for name, words in options.items()}
    assert chosen == {
        "gpu": {"test_plain", "test_one", "test_two", "test_overfits"},
        "gpu-tests": {"test_one", "test_two", "test_overfits"},
        "gpu-single": {"test_one"},
        "gpu-multi": {"test_two", "test_overfits"},
        "gpu-overfitting": {"test_one", "test_two", "test_overfits"},
    }


def test_each_test_of_two_cards_says_so_by_the_name_of_the_argument() -> None:
    for path in [
        *(ROOT / "tests" / "gpu").glob("*.py"),
        *(ROOT / "tests/acceptance").glob("*.py"),
        *(ROOT / "examples/training").glob("*.py"),
    ]:
        assert not re.search(r"^@pytest\.mark\.gpu\(\d", path.read_text("utf-8"), re.MULTILINE), (
            path
        )


def test_what_the_environments_of_the_recipe_select(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = commands(recipe(pytester.path))
    assert set(found) == set(NAMES)
    monkeypatch.setenv("PYTEST_REMOTEGPU", "local:cpu:2")
    pytester.makepyfile(MARKED.format(several="multi_gpu"))
    options = {name: [w for w in words if w != "--gpu-required"] for name, words in found.items()}
    chosen = {name: selected(pytester, *words) for name, words in options.items()}
    assert chosen == {
        "gpu": {"test_plain", "test_one", "test_two", "test_overfits"},
        "gpu-tests": {"test_one", "test_two", "test_overfits"},
        "gpu-single": {"test_one"},
        "gpu-multi": {"test_two", "test_overfits"},
        "gpu-overfitting": {"test_overfits"},
    }
    result = pytester.runpytest_subprocess(*options["gpu-multi"], timeout=90)
    assert "remote: 2 tests on 2 GPUs" in said(result)
    result.assert_outcomes(passed=2, deselected=2)


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_that_selects_nothing_fails(name: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_plain(): pass")
    words = [word for word in commands(ROOT)[name] if not word.startswith(PATHS)]
    result = pytester.runpytest_subprocess(*words, timeout=90)
    if name == "gpu":
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        assert "--gpu-required: no test with the gpu mark ran on a GPU" in said(result)
    else:
        assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
