"""The project's own rules for its files, where no tool keeps them.

Actions pinned by commit, fragments that towncrier will find, README commands that CI can extract.
Knows files of the repository, and nothing of the package.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PIN = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def run(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run one of CI's scripts with *arguments* and return what it said."""
    return subprocess.run(
        [sys.executable, ROOT / ".ci" / script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_gives_away_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    used = re.findall(r"uses: (.*)", text)
    assert used
    assert [action for action in used if not PIN.fullmatch(action)] == []
    assert re.search(r"^permissions: \{\}$", text, re.MULTILINE)
    if path.name not in ("gpu-bench.yml", "gpu-tests.yml"):  # which have tests of their own
        assert "secrets." not in text
        assert "issue_comment" not in text
        assert "pull_request_target" not in text
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


@pytest.mark.parametrize("name", ["quickstart", "tests"])
def test_readme_commands_are_one_line_each(name: str) -> None:
    result = run("readme_command.py", name)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- command: a -->\n\n```console\nmake a\n```\n", "make a\n"),
        ("<!-- command: a -->\nwords\n```\nmake a\n```\n", "found 0"),
        ("<!-- command: b -->\n```\nmake b\n```\n", "marked are ['b']"),
        ("<!-- command: a -->\n```\nx\n```\n<!-- command: a -->\n```\ny\n```\n", "found 2"),
    ],
    ids=["fenced", "not next to it", "other name", "twice"],
)
def test_readme_command_is_found_or_missed(text: str, said: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    result = run("readme_command.py", "a", page)
    if result.returncode == 0:
        assert result.stdout == said
    else:
        assert said in result.stderr


@pytest.mark.parametrize(
    ("name", "text", "fine"),
    [
        ("12.feature.md", "Does it.", True),
        ("12.feature.2.md", "Does it.", True),
        ("+word.misc.md", "Did it.", True),
        ("12.feture.md", "Does it.", False),
        ("12.feature", "Does it.", False),
        ("12.bugfix.md", " \n", False),
    ],
)
def test_fragments_are_judged_by_name_and_text(
    name: str, text: str, fine: bool, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    result = run("check_fragments.py", tmp_path)
    assert (result.returncode == 0) is fine
    assert (name in result.stderr) is not fine


def test_fragments_of_this_change_are_fine() -> None:
    assert run("check_fragments.py").stderr == ""


def test_oldest_pytest_is_said_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    oldest = project["tool"]["pytest"]["ini_options"]["minversion"]
    assert f"pytest>={oldest}" in project["project"]["dependencies"]
    assert f"pytestmin: pytest=={oldest}." in (ROOT / "tox.ini").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["ci.yml", "gpu-tests.yml"])
def test_each_python_of_the_classifiers_is_tested(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    classified = re.findall(r"Python :: (3\.\d+)", " ".join(project["project"]["classifiers"]))
    workflow = (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
    assert f"python: {str(classified).replace(chr(39), chr(34))}" in workflow
