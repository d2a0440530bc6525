"""What a comment asks for: the grammar of ``/benchmark``, and nothing that guesses.

Values in, values out. A comment is text of anybody: only what this has read goes further.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pytest_remotegpu.errors import RemoteGpuError

__all__ = [
    "COMMAND",
    "COMMIT",
    "GRAMMAR",
    "AskingError",
    "Wish",
    "is_addressed",
    "parse",
    "read_card",
    "read_margin",
    "shown",
]

COMMAND: Final = "/benchmark"
GRAMMAR: Final = "/benchmark CARD [MARGIN] [at COMMIT]"
COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
LONGEST: Final = 300
"""Of a comment that can be meant, in signs."""
SHOWN: Final = 60
"""Of a text that is quoted, in signs."""
LEAST: Final = 1.0
MOST: Final = 10.0
MARGIN: Final = re.compile(r"[0-9]{1,2}(?:\.[0-9]{1,3})?")
CARD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9!+-]{0,31}")
LINE: Final = re.compile(
    r"/benchmark[ \t]+(?P<card>[^ \t\r\n]+)"
    r"(?:[ \t]+(?P<margin>(?!at[ \t])[^ \t\r\n]+))?"
    r"(?:[ \t]+at[ \t]+(?P<commit>[^ \t\r\n]+))?"
)
TOO_OLD: Final = {"P100": "6.0", "V100": "7.0", "T4": "7.5"}
"""Compute capabilities of cards that FlashAttention-2 does not run on, though people try."""


class AskingError(RemoteGpuError):
    """Raised for what can't be meant; the text says why."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for.

    :ivar card: a type of card, one of those that may be asked for.
    :ivar margin: by how much the way has to be faster, such as ``1.2``; empty where none is named.
    :ivar commit: the whole name of a commit; empty where none is named.
    """

    card: str
    margin: str = ""
    commit: str = ""


def shown(text: str) -> str:
    r"""Quote a text of anybody, on one line, cut short, where nothing looks like what it is not.

    >>> shown("\u0410100\n")
    "'\\u0410100\\n'"
    """
    return ascii(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def is_addressed(body: str) -> bool:
    """Say whether a comment speaks to this at all: its first word is the command, to the letter."""
    return body.startswith(COMMAND) and body[len(COMMAND) : len(COMMAND) + 1] in ("", *" \t\r\n")


def parse(body: str, cards: Sequence[str]) -> Wish:
    """Read a comment that is the command and nothing else.

    :param cards: the types of card that may be asked for.
    :raises AskingError: where it is anything but that.
    """
    text = body.rstrip(" \t\r\n")
    if len(text) > LONGEST:
        raise AskingError(f"the comment has {len(text)} signs; it has to be the command alone")
    if "\n" in text or "\r" in text:
        raise AskingError("the comment has several lines; it has to be the command alone")
    found = LINE.fullmatch(text)
    if found is None:
        raise AskingError(f"{shown(text)} is not understood")
    card, margin, commit = found.groups()
    if commit is not None and not COMMIT.fullmatch(commit):
        raise AskingError(
            f"{shown(commit)} is no commit; all of its 40 signs are wanted, in small letters"
        )
    return Wish(read_card(card, cards), read_margin(margin) if margin else "", commit or "")


def read_card(text: str, cards: Sequence[str]) -> str:
    """Read a type of card.

    :raises AskingError: where it is none of those that may be asked for.
    """
    name = text.upper().rstrip("!+")
    if name in TOO_OLD:
        raise AskingError(
            f"FlashAttention-2 needs compute capability 8.0 or newer, and a {name} has"
            f" {TOO_OLD[name]}; take one of: {', '.join(cards)}"
        )
    if text not in cards or not CARD.fullmatch(text):
        raise AskingError(f"{shown(text)} is no card to ask for; these are: {', '.join(cards)}")
    return text


def read_margin(text: str) -> str:
    """Read a margin, and write it the shortest way.

    :raises AskingError: where it is no number from 1 to 10 with three decimals at most.

    >>> read_margin("1.20"), read_margin("2")
    ('1.2', '2')
    """
    if not MARGIN.fullmatch(text) or not LEAST <= float(text) <= MOST:
        raise AskingError(
            f"{shown(text)} is no margin; a number from {LEAST:g} to {MOST:g} is wanted, as 1.2"
        )
    return f"{float(text):g}"
