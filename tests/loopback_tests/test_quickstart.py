"""The command that docs/modal-testing.md shows, to the letter, and with images of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).parents[2]
PAGE = TREE / "docs" / "modal-testing.md"


def run(command: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in the tree, with the Python of this session first in its path."""
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTEST_ADDOPTS": f"-o cache_dir={cache}",
    }
    return subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=TREE,
        env=environ,
        check=False,
        capture_output=True,
        text=True,
        timeout=110,
    )


def shown() -> str:
    """Return the page's command."""
    match = re.search(r"```bash\n(.+)\n```", PAGE.read_text())
    assert match is not None
    return match[1]


def test_the_quickstart_runs_on_the_loopback_service(tmp_path: Path) -> None:
    ended = run(shown(), tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 passed" in ended.stdout
    assert "(no GPU was used)" in ended.stdout


def test_the_quickstart_runs_in_images_that_are_built(tmp_path: Path) -> None:
    command = shown().replace("tests.loopback --", "tests.loopback --images=venv --")
    ended = run(command, tmp_path)
    assert "4 passed" in ended.stdout, ended.stdout + ended.stderr
