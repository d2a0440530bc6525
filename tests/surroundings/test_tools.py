"""The files and commands of docs/recipes.md, run by the tools themselves: tox, nox, uv, Poetry.

Packages come from wheels of what is installed here; no index is asked. A tool that is not there is
skipped: `tox run -e surroundings` has them all.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from .wheelhouse import build

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
FILE = re.compile(r"<!-- file: (\S+) -->\n<!--[^\n]*-->\n```\w+\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"<!-- tested in: [^\n]*-->\n```bash\n(.*?)```", re.DOTALL)
TESTS = """
    import os
    import pytest

    def test_here():
        assert "REMOTEGPU_WORKER" not in os.environ

    @pytest.mark.gpu
    def test_far(tmp_path):
        assert os.environ["REMOTEGPU_WORKER"] == "local-1"
"""
LIMIT = 200.0


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("house") / "wheels", "pytest-remotegpu")


@pytest.fixture
def project(pytester: pytest.Pytester, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lay out a project, and variables with which pip and uv take these wheels."""
    folder = pytester.mkdir("project")
    text = "\n".join(line.removeprefix("    ") for line in TESTS.splitlines())
    folder.joinpath("test_model.py").write_text(text)
    given = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CONFIG_FILE": os.devnull,
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(wheels),
        "UV_CACHE_DIR": str(folder.parent / "uv"),
        "UV_PYTHON": sys.executable,
        "UV_NO_CONFIG": "1",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    for name in ("VIRTUAL_ENV", "PYTHONPATH", "UV_CONSTRAINT", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    return folder


def section(title: str) -> tuple[dict[str, str], list[str]]:
    """Give the files and the commands that the page has under a title."""
    text = PAGE.read_text("utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return dict(FILE.findall(text)), COMMAND.findall(text)


def tool(name: str) -> str:
    """Find a command beside this interpreter or on the path, and have it found by others."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which(name, path=f"{beside}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def obey(folder: Path, command: str) -> str:
    """Run commands of the page in a folder, and give what they wrote."""
    path = f"{Path(tool(command.split(maxsplit=1)[0])).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-ec", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        folder.joinpath(Path(name).name).write_text(text, encoding="utf-8")


@pytest.mark.timeout(300)
def test_tox(project: Path) -> None:
    files, (command,) = section("tox")
    write(project, files)
    said = obey(project, command)
    assert said.count("1 passed, 1 deselected") == 2
    assert "on this host's CPU" in said
    assert "(no GPU was used)" in said


@pytest.mark.timeout(300)
def test_nox(project: Path) -> None:
    files, (command,) = section("nox")
    write(project, files)
    said = obey(project, command)
    assert said.count("1 passed, 1 deselected") == 2
    assert "on this host's CPU" in said


@pytest.mark.timeout(300)
def test_uv(project: Path) -> None:
    files, (within, without) = section("uv")
    write(project, files)
    assert "2 passed" in obey(project, within)
    assert project.joinpath("uv.lock").is_file()
    project.joinpath("pyproject.toml").unlink()
    assert "2 passed" in obey(project, without)


@pytest.fixture
def index(wheels: Path, tmp_path: Path) -> Iterator[str]:
    """Serve the wheels as an index does; Poetry takes nothing else. Gives its address."""
    root = tmp_path / "index"
    for wheel in wheels.iterdir():
        folder = root / canonicalize_name(wheel.name.split("-")[0])
        folder.mkdir(parents=True)
        shutil.copy(wheel, folder)
        folder.joinpath("index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    handler = functools.partial(Quiet, directory=str(root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class Quiet(SimpleHTTPRequestHandler):
    """Says nothing of what is asked for."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- its base's word
        """Leave it out."""


@pytest.mark.timeout(300)
def test_poetry(project: Path, index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files, (command,) = section("Poetry")
    write(project, files)
    with project.joinpath("pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(f'\n[[tool.poetry.source]]\nname = "here"\nurl = "{index}"\n')
    monkeypatch.setenv("POETRY_CACHE_DIR", str(project.parent / "poetry"))
    monkeypatch.setenv("POETRY_VIRTUALENVS_IN_PROJECT", "true")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    assert "2 passed" in obey(project, command)
    assert project.joinpath("poetry.lock").is_file()
