"""Text that may be published: what looks like a secret in it is blotted out.

Values in, values out. The rules err on the side of blotting out: a value too many is missed by
nobody, a token that was published is.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

__all__ = ["BLOT", "blotted", "blotted_spec", "blotted_words", "values_of"]

BLOT: Final = "***"
SHORTEST: Final = 6
"""Characters that a variable's value has at the least to be looked for: else ``1`` would be."""

_SAYS_SO: Final = (
    r"[\w.-]*(?:token|secret|passw|[_.-]pwd|passphrase|credential|cookie|authori[sz]ation|bearer"
    r"|api[-_.]?key|access[-_.]?key|private[-_.]?key|account[-_.]?key|auth[-_.]?key|signature)[\w.-]*"
)
"""A name of what is a secret."""
_SHORT: Final = r"(?:pass|pw|pwd|pat|key|sig)"
"""Names that are a whole word, and part of too many others."""
_VALUE: Final = r"""(?:"[^"]*"|'[^']*'|[^\s"',;&)\]}]+)"""
_NAMED: Final = re.compile(
    rf"(?i)(?P<keep>\b{_SAYS_SO}(?:['\"]?\s*=\s*|['\"]?:\s+|['\"]:)(?:bearer\s+|basic\s+)?){_VALUE}"
)
_BRIEF: Final = re.compile(rf"(?i)(?P<keep>(?<![\w.]){_SHORT}=){_VALUE}")
_OPTION: Final = re.compile(
    rf"(?i)(?P<keep>(?<!\S)-{{1,2}}(?:{_SAYS_SO}|{_SHORT})\s+)(?!-){_VALUE}"
)
_SSHPASS: Final = re.compile(rf"(?P<keep>\bsshpass\s+-p\s*){_VALUE}")
_USER: Final = re.compile(
    r"(?P<keep>(?<!\S)(?:-u|--(?:proxy-)?user)[\s=]\s*(?P<quote>['\"])?[^\s:'\"]+:)"
    r"(?(quote)[^'\"]*|[^\s'\"]+)"
)
"""A user with a password, as curl and wget take it."""
_ASSIGNED: Final = re.compile(rf"(?P<keep>(?<![\w-])(?:-[A-Za-z])?[A-Z_][A-Z0-9_]*=){_VALUE}")
"""A variable with its value, as ``env`` and ``docker run -e`` take it."""
_LOGIN: Final = re.compile(
    r"(?P<keep>[A-Za-z][A-Za-z0-9+.-]*://(?:[^\s/:@'\"]*:(?=[^\s/@'\"]*@))?)[^\s/@'\"]+@"
)
"""What stands before the host in an address: a password, or a token alone."""
_BARE_LOGIN: Final = re.compile(
    r"(?P<keep>(?<![\w.+-])(?!ssh:)[\w.+-]+:)[^\s/@:'\"]+@(?=[\w\[])(?!sha256:)"
)
"""The same in an address that begins with the user; not the user of ``ssh:USER@HOST``."""
_HEADER: Final = re.compile(r"(?i)(?P<keep>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}")
_KNOWN: Final = re.compile(
    r"\b(?:gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{16,}"
    r"|sk-[\w-]{16,}|a[ks]-[A-Za-z0-9]{16,}|AKIA[A-Z0-9]{12,}|xox[abprs]-[\w-]{10,}|AIza[\w-]{30,}"
    r"|npm_\w{30,}|pypi-[\w-]{16,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
"""Tokens that services give out, by their beginnings; a JSON web token."""
_NAME: Final = re.compile(rf"(?i)(?:{_SAYS_SO}|pass|key|.*_(?:key|pass|pat|dsn))\Z")


def values_of(environ: Mapping[str, str], named: Iterable[str]) -> list[str]:
    """Give the values of variables that must not be published, longest first.

    :param named: names, or shell patterns of names, that are passed on: they count, whatever their
        names are.
    """
    patterns = list(named)
    found = {
        value
        for name, value in environ.items()
        if len(value) >= SHORTEST
        and (_NAME.match(name) or any(fnmatch.fnmatchcase(name, each) for each in patterns))
    }
    return sorted(found, key=len, reverse=True)


def blotted(text: str, values: Iterable[str] = ()) -> str:
    """Blot out what looks like a secret.

    :param values: what is one, whatever it looks like.
    """
    for value in values:
        text = text.replace(value, BLOT)
    for pattern in (_NAMED, _BRIEF, _OPTION, _SSHPASS, _USER, _ASSIGNED, _HEADER):
        text = pattern.sub(rf"\g<keep>{BLOT}", text)
    for pattern in (_LOGIN, _BARE_LOGIN):
        text = pattern.sub(rf"\g<keep>{BLOT}@", text)
    return _KNOWN.sub(BLOT, text)


def blotted_spec(spec: str, values: Iterable[str]) -> str:
    """Do so in the name of a far side, whose kind stays."""
    kind, colon, rest = spec.partition(":")
    return f"{kind}{colon}{blotted(rest, values)}"


def blotted_words(words: Sequence[str], values: Iterable[str] = ()) -> list[str]:
    """Do so in the words of a command, of which one may be the value of the one before."""
    values = list(values)
    found: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        is_value = _NAME.match(before.lstrip("-")) if before.startswith("-") else None
        found.append(BLOT if is_value and not word.startswith("-") else blotted(word, values))
    return found
