"""The checks need torch; what they are made of does not."""

from __future__ import annotations

import importlib.util

import threads

collect_ignore_glob = []
if importlib.util.find_spec("torch") is None:
    torches = ("[ab]*", "com*", "diagnose", "kernels", "overfit", "ranks", "sharding", "suite")
    collect_ignore_glob = [f"test_{name}.py" for name in (*torches, "training", "unregistered")]


_one_thread = threads.one_thread
