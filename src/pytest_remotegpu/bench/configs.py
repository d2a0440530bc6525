"""Change single whole numbers in a configuration and leave every other byte as it is.

Each format's parser finds the places; what is between them is never written anew. The result is
read back and has to differ from what was there in the wanted keys alone.
"""

from __future__ import annotations

import difflib
import json
import reprlib
import shutil
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.bench import places, whole
from pytest_remotegpu.errors import UsageError

__all__ = ["KEYS", "Change", "held", "plan"]

SECTION: Final = "runtime"
KEYS: Final = ("fa2_min_len_win", "fa2_min_len_cmp")
"""The keys under ``runtime`` that a benchmark of FlashAttention-2 decides."""
FORMATS: Final = {".json": "JSON", ".toml": "TOML", ".yaml": "YAML", ".yml": "YAML"}
MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a configuration that is not made yet.

    :ivar path: the file; where it is a symbolic link, what that leads to.
    :ivar before: its bytes.
    :ivar after: the bytes that it would get.
    """

    path: Path
    before: bytes
    after: bytes

    @property
    def diff(self) -> str:
        """The change as a unified diff; empty where there is none."""
        name = self.path.as_posix()
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in difflib.unified_diff(
                self.before.decode().splitlines(keepends=True),
                self.after.decode().splitlines(keepends=True),
                f"a/{name.lstrip('/')}",
                f"b/{name.lstrip('/')}",
            )
        )

    def write(self) -> Path | None:
        """Make the change in one step, after a copy of the old file beside it.

        :return: the copy, ``NAME.bak``; ``None`` where nothing changes.
        :raises UsageError: where the file is no longer what it was, or can't be written.
        """
        if self.before == self.after:
            return None
        backup = self.path.with_name(f"{self.path.name}.bak")
        try:
            if self.path.read_bytes() != self.before:
                raise UsageError(
                    f"{self.path} was changed meanwhile and is left as it is",
                    fix="run this again",
                )
            shutil.copy2(self.path, backup)
            whole.put(self.path, self.after)
        except OSError as error:
            raise UsageError(
                f"{self.path} can't be changed: {error.strerror or error}; it is as it was",
                fix="make it and its folder writable, or give --dry-run and copy the difference",
            ) from error
        return backup


def plan(path: Path, values: Mapping[str, int]) -> Change:
    """Work out a change without making it.

    :param path: a file of YAML, TOML or JSON, told apart by its suffix.
    :param values: by key, one or both of :data:`KEYS`; other keys stay as they are.
    :raises UsageError: where the file can't be read, is none of the three, is broken, or has such a
        shape that the keys can't be changed alone.
    """
    unknown = sorted(set(values) - set(KEYS))
    if unknown:
        raise UsageError(f"only {' and '.join(KEYS)} are changed, never {', '.join(unknown)}")
    path, kind, before = _opened(path)
    return Change(path, before, _changed(path, kind, before.decode(), values).encode())


def held(path: Path) -> dict[str, Any]:
    """Read what a configuration has under :data:`KEYS`; keys that it lacks are left out.

    :raises UsageError: as :func:`plan`.
    """
    path, kind, text = _opened(path)
    data = _read(path, kind, _reader(kind), text.decode().removeprefix("\ufeff"))
    found = {key: _held(data, _where(path, data, key)) for key in KEYS}
    return {key: value for key, value in found.items() if value is not MISSING}


def _opened(path: Path) -> tuple[Path, str, bytes]:
    """Give a configuration's own path, its format, and its bytes, which are UTF-8."""
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise UsageError(
            f"{path} has the suffix {path.suffix!r}",
            fix=f"a configuration ends with one of {', '.join(FORMATS)}",
        )
    try:
        path = path.resolve(strict=True)
        before = path.read_bytes()
        before.decode()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no UTF-8: byte {error.start} can't be read") from error
    return path, kind, before


def _changed(path: Path, kind: str, text: str, values: Mapping[str, int]) -> str:
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    text = text.removeprefix(mark) if mark else text
    read = _reader(kind)
    data = _read(path, kind, read, text)
    for key, value in values.items():
        where = _where(path, data, key)
        if _held(data, where) == value and type(_held(data, where)) is int:
            continue
        wanted = _with(data, where, value)
        edit = getattr(places, f"set_in_{kind.lower()}")
        try:
            text = edit(text, where, value)
            data = _read(path, kind, read, text)
        except (places.NoPlaceError, UsageError) as error:
            raise _refusal(path, where, value, str(error)) from error
        if not _same(data, wanted):
            raise _refusal(path, where, value, "other values would change with it")
    return mark + text


def _refusal(path: Path, where: tuple[str, ...], value: int, why: str) -> UsageError:
    name = ".".join(where)
    return UsageError(
        f"{name} in {path} can't be changed alone: {why}", fix=f"set {name} to {value} by hand"
    )


def _where(path: Path, data: Any, key: str) -> tuple[str, ...]:
    """Say under which keys a value lies, or will."""
    if not isinstance(data, dict | None):
        raise UsageError(f"{path} holds no table of keys but a {type(data).__name__}")
    dotted = f"{SECTION}.{key}"
    section = (data or {}).get(SECTION)
    if dotted in (data or {}):
        if isinstance(section, dict) and key in section:
            raise UsageError(f"{path} has {key} twice: as {dotted!r}, and under {SECTION!r}")
        return (dotted,)
    if not isinstance(section, dict | None):
        raise UsageError(
            f"{SECTION} in {path} is {reprlib.repr(section)}, and has to be a table of keys"
        )
    return SECTION, key


def _held(data: Any, where: tuple[str, ...]) -> Any:
    for key in where:
        if not isinstance(data, dict) or key not in data:
            return MISSING
        data = data[key]
    return data


def _with(data: Any, where: tuple[str, ...], value: int) -> Any:
    """Give a copy of tables in which one value is another one."""
    first, *rest = where
    table = dict(data or {})
    table[first] = _with(table.get(first), tuple(rest), value) if rest else value
    return table


def _same(one: Any, other: Any, seen: set[tuple[int, int]] | None = None) -> bool:
    """Compare two documents, where 1, 1.0 and true differ and a NaN is itself.

    What a YAML document has in many places, by an alias, is compared once; so it may hold itself.

    :param seen: the pairs that are compared already, by their identities.
    """
    if type(one) is not type(other):
        return False
    if not isinstance(one, dict | list):
        return bool(one == other) or (one != one and other != other)  # noqa: PLR0124 -- a NaN
    seen = set() if seen is None else seen
    if (id(one), id(other)) in seen:
        return True
    seen.add((id(one), id(other)))
    if isinstance(one, dict):
        alike = one.keys() == other.keys()
        return alike and all(_same(one[key], other[key], seen) for key in one)
    return len(one) == len(other) and all(
        _same(*pair, seen) for pair in zip(one, other, strict=True)
    )


def _read(path: Path, kind: str, read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is broken {kind}: {error}") from error


def _reader(kind: str) -> Callable[[str], Any]:
    """Give what reads a text; it raises ``ValueError`` for a broken one."""
    if kind == "JSON":
        return lambda text: json.loads(text, object_pairs_hook=_once)
    if kind == "TOML":
        return tomllib.loads
    return places.read_yaml


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found
