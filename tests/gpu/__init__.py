"""What only real cards can show, as ``tox run -e gpu-single`` and ``-e gpu-multi`` run it.

Marked ``gpu``, so that a host without cards skips it with the way to run it. What needs two says
``count=2`` by that name, by which ``-m`` tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

__all__ = ["REMOTE", "Run"]

REMOTE: Final = "--remote=local"

Run = Callable[..., pytest.RunResult]
"""Runs a session on this host's cards: options, and the text of modules by their name."""
