"""All kinds of faults, by name."""

from __future__ import annotations

from typing import Final

from . import ends, hostile, sessions
from .kinds import Kind

__all__ = ["KINDS"]

KINDS: Final[dict[str, Kind]] = {
    kind.name: kind for kind in (*map(hostile.kind, hostile.ACTS), *sessions.KINDS, *ends.KINDS)
}
