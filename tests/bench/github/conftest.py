"""A repository with a pull request, and the jobs of the workflow as processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hub.events import BEFORE, NUMBER, document
from hub.server import TOKEN, Hub, serve
from hub.state import REPOSITORY

CONFIG = b"""\
# of the model
runtime:
  fa2_min_len_win: 512   # measured last year
  fa2_min_len_cmp: -1
  other: 3
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    """Serve a repository whose pull request 7 comes from a branch of its own; ann may write."""
    with serve() as served:
        repo = served.repo
        base = repo.commit("main", {"conf/model.yaml": ("100644", CONFIG)})
        repo.branches["patch"] = base
        head = repo.commit(
            "patch", {"conf/model.yaml": ("100644", CONFIG), "a.py": ("100755", b"pass\n")}
        )
        repo.open_pull(NUMBER, "patch", head)
        repo.pushed("patch", head, BEFORE)
        repo.permissions["ann"] = ("write", "write")
        repo.comments[501] = {"id": 501, "issue": NUMBER, "user": {"login": "ann"}, "body": "x"}
        yield served
        assert served.complaints == []


@pytest.fixture
def head(hub: Hub) -> str:
    """Give the head of the pull request."""
    return str(hub.repo.pulls[NUMBER]["head"]["sha"])


@dataclass
class Said:
    """What a job said: its exit status, its log, its outputs, and the run's page."""

    status: int
    log: str
    outputs: dict[str, str]
    page: str


class Jobs:
    """Starts jobs, each as a process with an environment of its own."""

    def __init__(self, hub: Hub, folder: Path) -> None:
        self.hub, self.folder, self.count = hub, folder, 0

    def start(self, command: str, event: Any = None, **told: Any) -> Callable[[], Said]:
        """Start one, and give what waits for its end.

        :param event: that the runner tells; a text as it is. :param told: variables.
        """
        self.count += 1
        place = self.folder / str(self.count)
        place.mkdir()
        text = event if isinstance(event, str) else json.dumps(event)
        (place / "event.json").write_text(text, encoding="utf-8")
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "NO_PROXY": "127.0.0.1",
            "GITHUB_API_URL": self.hub.url,
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_EVENT_NAME": "issue_comment",
            "GITHUB_EVENT_PATH": str(place / "event.json"),
            "GITHUB_OUTPUT": str(place / "output"),
            "GITHUB_STEP_SUMMARY": str(place / "page"),
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_RUN_ID": "90",
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_TOKEN": TOKEN,
            "CARDS": "L4 A100 A100-80GB H100",
            **{name: value for name, value in told.items() if name.isupper()},
        }
        arguments = [told["file"]] if "file" in told else []
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest_remotegpu.bench.github", command, *arguments],
            env=environ,
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        return lambda: self.end(process, place)

    def end(self, process: subprocess.Popen[bytes], place: Path) -> Said:
        """Wait for its end; a traceback, the token, or a file that nobody expects is a fault."""
        with process:
            out, trouble = process.communicate(timeout=100)
        log = out.decode("utf-8")
        assert trouble == b"", trouble.decode()
        assert TOKEN not in log
        files = {path.name for path in place.iterdir()}
        assert files <= {"event.json", "output", "page"}
        output = (place / "output").read_text("utf-8") if "output" in files else ""
        page = (place / "page").read_text("utf-8") if "page" in files else ""
        assert TOKEN not in output + page
        return Said(process.returncode, log, outputs(output), page)

    def run(self, command: str, event: Any = None, **told: Any) -> Said:
        """Start one and wait for its end."""
        return self.start(command, event, **told)()


def outputs(text: str) -> dict[str, str]:
    """Read outputs as the runner does, each between its marks; nothing may stand beside them."""
    found = re.findall(r"^([\w-]+)<<(\S+)\n(.*?)\n\2\n", text, re.MULTILINE | re.DOTALL)
    assert "".join(f"{n}<<{m}\n{v}\n{m}\n" for n, m, v in found) == text
    return {name: value for name, _, value in found}


@pytest.fixture
def jobs(hub: Hub, tmp_path: Path) -> Jobs:
    """Give what starts jobs."""
    return Jobs(hub, tmp_path)


@pytest.fixture
def results(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes the document of a benchmark."""

    def write(text: str | bytes | None = None, **more: Any) -> Path:
        path = tmp_path / "fa2.json"
        data = json.dumps(document(**more)) if text is None else text
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    return write
