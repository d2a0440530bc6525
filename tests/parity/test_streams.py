"""`-s`, `log_cli` and `--log-file`: what far tests say is there, and while they still run.

The far tests wait until a listener on the terminal's other end has read their line.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import Lab
from .running import LEFT_OUT, Leg, Project, Workspace

SECONDS = 60.0
# The far test draws its bar, and waits after each stroke until that was seen.
BARS = {f"bar{i}": f"\r{i}/5" for i in range(5)}


@dataclass(frozen=True)
class Heard:
    """A finished run: what was on the screen, and the log file."""

    status: int
    output: str
    log: str


def listen(leg: Leg, folder: Path, options: list[str], signals: Mapping[str, str]) -> Heard:
    """Run the talking project, making a file as soon as its text was read from the screen.

    Args:
        leg: the way to run it, with what it needs.
        folder: where to put the copy.
        options: pytest's options.
        signals: the text that has to be read before, by the name of the file to make.
    """
    workspace = Workspace.make(folder / "0000", Project("talk"))
    log = folder / "log.txt"
    with subprocess.Popen(
        [*workspace.command(leg, options), f"--log-file={log}", "--log-file-level=DEBUG"],
        cwd=workspace.cwd,
        env=workspace.environment(leg),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        output = ""
        while chunk := process.stdout.read1(65536):  # type: ignore[attr-defined]
            output += chunk.decode()
            for name, text in signals.items():
                if text in output:
                    (workspace.folder / name).touch()
        timer.cancel()
    return Heard(process.returncode, output, log.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def spoken(lab: Lab, leg: Leg, tmp_path_factory: pytest.TempPathFactory) -> Heard:
    """Give a run with `-s`."""
    folder = tmp_path_factory.mktemp("spoken")
    return listen(
        lab.equipped(leg), folder, ["-s", "-v", *LEFT_OUT], {"heard": "line one\n", **BARS}
    )


@pytest.fixture(scope="module")
def logged(lab: Lab, leg: Leg, tmp_path_factory: pytest.TempPathFactory) -> Heard:
    """Give a run with `log_cli`."""
    options = ["-v", "-o", "log_cli=true", "-o", "log_cli_level=INFO", *LEFT_OUT]
    folder = tmp_path_factory.mktemp("logged")
    return listen(
        lab.equipped(leg), folder, options, dict.fromkeys(["heard", *BARS], "epoch 1 done")
    )


def test_output_is_live(spoken: Heard) -> None:
    assert spoken.status == 0, spoken.output


def test_lines_are_whole_and_ahead_of_the_result(spoken: Heard) -> None:
    lines = spoken.output.split("\n")
    for text in ("line one", "line two", "line three"):
        (line,) = [line for line in lines if text in line]
        assert re.fullmatch(rf"(test_talk.py::\w+ )?{text}", line), spoken.output
    result = spoken.output.index("PASSED", spoken.output.index("test_talk.py::test_far"))
    assert spoken.output.index("line one") < result
    assert spoken.output.index("line two") < result


def test_carriage_returns_are_passed_on(spoken: Heard) -> None:
    places = [spoken.output.index(text) for text in BARS.values()]
    assert places == sorted(places)


def test_log_records_are_live(logged: Heard) -> None:
    assert logged.status == 0, logged.output
    for text in ("epoch 1 done", "epoch 2 done"):
        (line,) = [line for line in logged.output.split("\n") if text in line]
        assert line.startswith("INFO ")
        assert "app:test_talk.py:" in line
    assert "too detailed for the screen" not in logged.output


@pytest.mark.parametrize("text", ["epoch 1 done", "epoch 2 done", "too detailed for the screen"])
def test_log_file_has_the_records_once(spoken: Heard, logged: Heard, text: str) -> None:
    for heard in (spoken, logged):
        lines = [line for line in heard.log.split("\n") if text in line]
        assert len(lines) == 1, heard.log
        assert "app:test_talk.py:" in lines[0]


def test_far_records_name_their_worker(spoken: Heard) -> None:
    assert re.search(r"app:test_talk.py:\d+ \[[\w-]+\] epoch 1 done", spoken.log)
    assert re.search(r"app:test_talk.py:\d+ epoch 2 done", spoken.log)
