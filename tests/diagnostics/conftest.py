"""The checks need torch; what they are made of does not."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = []
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_asfound.py", "test_overfit*.py"]
