"""The command that docs/modal-testing.md shows, to the letter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).parents[2]
PAGE = TREE / "docs" / "modal-testing.md"


def test_the_quickstart_runs_on_the_loopback_service(tmp_path: Path) -> None:
    match = re.search(r"```bash\n(.+)\n```", PAGE.read_text())
    assert match is not None
    folder = Path(sys.executable).parent
    environ = {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTEST_ADDOPTS": f"-o cache_dir={tmp_path}",
    }
    environ.pop("MODAL_TOKEN_ID", None)
    ended = subprocess.run(
        ["/bin/bash", "-c", match[1]],
        cwd=TREE,
        env=environ,
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 passed" in ended.stdout
    assert "(no GPU was used)" in ended.stdout
