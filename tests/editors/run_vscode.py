"""Stands in for the script by which VS Code runs tests: their ids come from a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    ids = Path(os.environ["RUN_TEST_IDS_PIPE"]).read_text(encoding="utf-8").split("\n")
    sys.exit(pytest.main(["-p", "vscode_pytest", *sys.argv[1:], *filter(None, ids)]))
