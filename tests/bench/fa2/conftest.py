"""What computes needs torch; what is asked, and what a card can do, does not."""

from __future__ import annotations

import importlib.util

import threads

collect_ignore_glob = []
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = [
        f"test_fa2_{name}.py" for name in ("masks", "packages", "parity", "run", "ways")
    ]


_one_thread = threads.one_thread
