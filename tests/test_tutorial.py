"""The backend of docs/write-a-backend.md as its reader would have it: extracted, and tried.

Knows the page and pytest; what the backend must do is the conformance kit's business.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "write-a-backend.md"
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets, and workers")


@pytest.fixture
def files(pytester: pytest.Pytester) -> dict[str, str]:
    """Extract the page's files into the folder of the test; give their texts."""
    found: dict[str, str] = dict(FILE.findall(PAGE.read_text(encoding="utf-8")))
    for name, text in found.items():
        (pytester.path / name).write_text(text, encoding="utf-8")
    return found


def test_it_is_short(files: dict[str, str]) -> None:
    lines = sum(files[name].count("\n") for name in ("socket_backend.py", "socket_server.py"))
    assert 20 < lines <= 150


@pytest.mark.timeout(100)
@pytest.mark.usefixtures("files")
def test_it_passes_the_kit(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("-q", "-rs", "-p", "no:cacheprovider")
    outcomes = result.parseoutcomes()
    assert set(outcomes) == {"passed", "skipped"}
    assert outcomes["passed"] >= 15
    assert outcomes["skipped"] == 2
    result.stdout.fnmatch_lines(["*names no prices", "*lists nothing"])


@pytest.fixture
def installed(files: dict[str, str], pytester: pytest.Pytester) -> None:
    """Do for the page's project what an installation would: make its entry point known."""
    project = tomllib.loads(files["pyproject.toml"])["project"]
    home = pytester.mkdir(f"{project['name'].replace('-', '_')}-{project['version']}.dist-info")
    text = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (home / "METADATA").write_text(text)
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (home / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture
def server(pytester: pytest.Pytester, files: dict[str, str]) -> Iterator[str]:
    """Run the page's server with two pretend GPUs; give the path of its socket."""
    assert "socket_server.py" in files
    path = pytester.path / "worker.sock"
    variables = {**os.environ, "PYTEST_REMOTEGPU_PRETEND_GPUS": "2"}
    command = [sys.executable, "socket_server.py", str(path)]
    with subprocess.Popen(command, cwd=pytester.path, env=variables) as process:
        deadline = time.monotonic() + 20
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert path.stat().st_mode & 0o077 == 0
        yield str(path)
        process.kill()


@pytest.mark.usefixtures("installed")
def test_it_serves_a_session(
    pytester: pytest.Pytester, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    project = pytester.mkdir("project")
    project.joinpath("test_it.py").write_text(
        "import os, pytest\n"
        "@pytest.mark.gpu\n"
        "def test_there():\n"
        "    assert 'REMOTEGPU_WORKER' in os.environ\n"
        "def test_here():\n"
        "    assert 'REMOTEGPU_WORKER' not in os.environ\n"
    )
    monkeypatch.chdir(project)
    result = pytester.runpytest_subprocess(f"--remote=socket:{server}")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([f"*the container behind {server}*"])


@pytest.mark.usefixtures("installed")
def test_its_errors_are_those_of_the_plugin(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    project = pytester.mkdir("project")
    project.joinpath("test_it.py").write_text(
        "import pytest\n@pytest.mark.gpu\ndef test_there(): pass\n"
    )
    monkeypatch.chdir(project)
    result = pytester.runpytest_subprocess("--remote=socket:")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*it reads socket:PATH"])
    result = pytester.runpytest_subprocess("--remote=socket:/nonexistent")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*nobody answers on '/nonexistent'*"])
