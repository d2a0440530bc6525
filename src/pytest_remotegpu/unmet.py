"""Requirements that a project declares and a far side has not: as values, and in words.

Who finds them out is above; knows no file, no far side and no registry.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

__all__ = ["Need", "Unmet", "with_parts"]

OPTION: Final = "remotegpu_requirements"
MOST: Final = 40
"""Requirements that are named; a command has them all."""


class Need(Struct, frozen=True, order=True):
    """One requirement.

    :ivar where: what declares it, as a line of ``remotegpu_requirements`` says it:
        ``requirements.txt``, ``pyproject.toml``, ``pyproject.toml[extra]``.
    :ivar asks: what pip is to be asked for; empty where an address, not an index, has it.
    """

    where: str
    name: str
    asks: str = ""


class Unmet(Struct, frozen=True):
    """All such requirements of one session.

    :ivar python: the far interpreter; empty where it is not known. :ivar made: whether the far
        environment is made of what ``lines`` says.
    :ivar lines: those that ``remotegpu_requirements`` has, or would have if it were set.
    """

    needs: tuple[Need, ...]
    python: str = ""
    made: bool = False
    lines: tuple[str, ...] = ()

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Unmet:
        """Undo :func:`msgspec.to_builtins`; tuples may have become lists meanwhile."""
        needs = tuple(Need(**need) for need in data["needs"])
        return cls(needs, data["python"], data["made"], tuple(data["lines"]))

    def __or__(self, other: Unmet) -> Unmet:
        """Give those of two processes of one session."""
        needs = tuple(dict.fromkeys((*self.needs, *other.needs)))
        return Unmet(needs, self.python or other.python, self.made, self.lines)

    def words(self) -> str:
        """Name them all in one line, and say how the far side gets them."""
        named: dict[str, str] = {}
        for need in self.needs:
            named.setdefault(need.name, need.where)
        shown = list(named)[:MOST]
        places: dict[str, list[str]] = {}
        for name in shown:
            places.setdefault(named[name], []).append(name)
        text = ", ".join(f"{', '.join(names)} ({where})" for where, names in places.items())
        more = f" and {len(named) - len(shown)} more" if len(named) > len(shown) else ""
        way = self._setting() if self.made else self._command()
        return f"declared but not installed there: {text}{more}; {way}"

    def _setting(self) -> str:
        lines = with_parts(self.lines, (need.where for need in self.needs))
        if lines == with_parts(self.lines, ()):
            return (
                f"{OPTION} asks for that already, so look at what remotegpu_image and the hook "
                "pytest_remotegpu_modal_image make of it"
            )
        one = len(lines) == 1
        return f"set {OPTION} to the line{'' if one else 's'} {', '.join(map(repr, lines))}"

    def _command(self) -> str:
        asks = dict.fromkeys(need.asks for need in self.needs if need.asks)
        others = {need.name: need.where for need in self.needs if not need.asks}
        ways = []
        if asks:
            python = shlex.quote(self.python) if self.python else "PYTHON"
            ways.append(f"{python} -m pip install {' '.join(map(shlex.quote, asks))}")
        if others:
            places = ", ".join(dict.fromkeys(others.values()))
            ways.append(f"install {', '.join(others)} from where {places} has it")
        return f"on the far side: {', and '.join(ways)}"


def with_parts(lines: Iterable[str], parts: Iterable[str]) -> tuple[str, ...]:
    """Add parts of files to lines of ``remotegpu_requirements``, each where its file is named.

    A lock file stands for the ``pyproject.toml`` beside it.
    """
    files: dict[str, tuple[str, list[str]]] = {}
    for line in (*lines, *parts):
        path, words = _split(line)
        if path == OPTION:
            continue  # whose lines are there
        _, known = files.setdefault(_beside(path), (path, []))
        known += [word for word in words if word not in known]
    return tuple(f"{path}[{', '.join(words)}]" if words else path for path, words in files.values())


def _split(line: str) -> tuple[str, list[str]]:
    if line.startswith("pip:"):
        return line, []
    path, _, rest = line.partition("[")
    words = [word.strip() for word in rest.rstrip("]").split(",")]
    return path.strip(), [word for word in words if word]


def _beside(path: str) -> str:
    """Name what a file counts as."""
    folder, name = path.rpartition("/")[::2]
    return f"{folder}/pyproject.toml" if name in ("uv.lock", "pyproject.toml") else path
