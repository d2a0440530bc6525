"""Secrets that were written down: passwords in addresses, values of variables named like a secret.

Whoever can use an image can read how it was made, so that none may be among it. Values in, values
out; gives names and truth values only, never what it has found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["WAY_OUT", "has_password", "is_confidential", "secret_assignments"]

WAY_OUT: Final = "whoever can use an image can read that"
_NAME: Final = re.compile(
    r"TOKEN(?!I[SZ]|S\b|S_|_?(TYPE|LIMIT|COUNT))|SECRET|PASSW|CREDENTIAL|(API|ACCESS|PRIVATE)_?KEY",
    re.IGNORECASE,
)
"""Of variables; ``TOKENIZERS_PARALLELISM`` and ``MAX_TOKENS`` are about other tokens."""
_LOGIN: Final = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<user>[^/\s:@\"']*)(:(?P<word>[^/\s@\"']*))?@",
    re.IGNORECASE,
)
_VARIABLE: Final = re.compile(r"\$\{\w+\}|\$\w+")
_NO_PASSWORD: Final = "x-oauth-basic"  # noqa: S105 -- what stands there where the user is the token
_TOKEN_FROM: Final = 20
"""Characters from which on what stands alone before an ``@`` is a token and no user's name."""
_ASSIGNED: Final = re.compile(
    r"(?<![\w.-])(?P<name>[A-Za-z_]\w*)=(?P<value>\"[^\"]*\"|'[^']*'|[^\s;&|]*)"
)


def is_confidential(name: str) -> bool:
    """Say whether a variable of this name has a secret for its value."""
    return _NAME.search(name) is not None


def has_password(text: str) -> bool:
    """Say whether an address in a text has a password or token in it, other than as a variable."""
    return any(map(_is_literal, _LOGIN.finditer(text)))


def _is_literal(match: re.Match[str]) -> bool:
    user = _VARIABLE.sub("", match["user"])
    if not match["word"]:
        return match["scheme"].lower().endswith(("http", "https")) and len(user) >= _TOKEN_FROM
    word = _VARIABLE.sub("", match["word"])
    return bool(user and match["word"] == _NO_PASSWORD) or word not in ("", _NO_PASSWORD)


def secret_assignments(text: str) -> Iterator[str]:
    """Name the variables in a line such as ``A=1 export B=2`` that are given a secret as it is."""
    for match in _ASSIGNED.finditer(text):
        value = match["value"].strip("\"'")
        if value and not set("$`") & set(value) and is_confidential(match["name"]):
            yield match["name"]
