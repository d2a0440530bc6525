"""What a look at one thing has found. Knows nothing of things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["FAIL", "OK", "WARN", "Check", "fail", "ok", "warn"]

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "FAIL"


@dataclass(frozen=True)
class Check:
    """One line of the doctor.

    :ivar name: what was looked at. :ivar state: :data:`OK`; :data:`WARN` for what may be in the way
        of something; :data:`FAIL` for what is.
    :ivar text: what was found. :ivar fix: what to do about it; empty where nothing is to be done.
    """

    name: str
    state: str
    text: str
    fix: str = ""


def ok(name: str, text: str) -> Check:
    """Say that something is as it should be."""
    return Check(name, OK, text)


def warn(name: str, text: str, fix: str) -> Check:
    """Say that something may be in the way."""
    return Check(name, WARN, text, fix)


def fail(name: str, text: str, fix: str) -> Check:
    """Say that something is in the way."""
    return Check(name, FAIL, text, fix)
