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


HOURLY = """
import os, pytest
import hourly_backend
from pytest_remotegpu.testing import BackendConformance
from test_socket_backend import path

class TestHourlyBackend(BackendConformance):
    @pytest.fixture
    def backend(self, path):
        return hourly_backend.HourlyBackend(path)

    @pytest.fixture
    def unable(self):
        return hourly_backend.HourlyBackend("/nonexistent/worker.sock")
"""


@pytest.mark.timeout(100)
@pytest.mark.usefixtures("files")
def test_hourly_one_passes(pytester: pytest.Pytester) -> None:
    """The one that costs money; a longer name here would make its socket's path too long."""
    pytester.path.joinpath("test_hourly_backend.py").write_text(HOURLY)
    args = ("-q", "-rs", "-p", "no:cacheprovider", "test_hourly_backend.py")
    result = pytester.runpytest_subprocess(*args)
    outcomes = result.parseoutcomes()
    assert set(outcomes) == {"passed", "skipped"}
    assert outcomes["skipped"] == 1
    result.stdout.fnmatch_lines(["*lists nothing"])


@pytest.mark.usefixtures("files")
def test_hourly_session(
    pytester: pytest.Pytester, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a bound and a bill."""
    home = pytester.mkdir("hourly-1.0.dist-info")
    home.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: hourly\nVersion: 1.0\n")
    point = "[pytest_remotegpu.backends]\nhourly = hourly_backend:make\n"
    home.joinpath("entry_points.txt").write_text(point)
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    project = pytester.mkdir("project")
    project.joinpath("test_it.py").write_text(
        "import pytest\n@pytest.mark.gpu\ndef test_there(): pass\n"
    )
    monkeypatch.chdir(project)
    args = (f"--remote=hourly:{server}", "--remote-run-timeout=60")
    result = pytester.runpytest_subprocess(*args)
    result.assert_outcomes(passed=1)
    # a tenth of a cent a second: the limit, eight seconds of an end, a minute without work
    result.stdout.fnmatch_lines(
        [
            "remote: cost: at most $0.128, *",
            "remote: hourly: containers are paid for by the second",
            "cost: about $0.06*",
            f"left running: 1 machine without work*remotegpu stop hourly:{server}",
        ]
    )
    refused = pytester.runpytest_subprocess(*args, "--remote-max-cost=0.1")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    project.joinpath("test_it.py").write_text(
        "import pytest\n@pytest.mark.gpu(9)\ndef test_there(): pass\n"
    )
    refused = pytester.runpytest_subprocess(*args)
    refused.assert_outcomes()
    assert "has machines with up to 8 GPUs" in refused.stdout.str() + refused.stderr.str()
