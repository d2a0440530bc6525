"""The suites that are run: values read from `suites.toml` and `differences.toml`.

Knows these two files, and neither pips nor pytest.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = ["HERE", "Explained", "Suite", "load_explained", "load_suites"]

HERE: Final = Path(__file__).parent


@dataclass(frozen=True)
class Suite:
    """One project's tests, and what they need; `suites.toml` says what each word means."""

    name: str
    requirement: str
    built: bool
    sha256: tuple[str, ...]
    needs: tuple[str, ...]
    args: tuple[str, ...]
    installed: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    far: tuple[str, ...] = ()
    shows: str = ""

    @property
    def pinned(self) -> str:
        """The requirement as a line of a requirements file, with the hashes that it may have."""
        return " ".join([self.requirement, *(f"--hash=sha256:{one}" for one in self.sha256)])

    @property
    def draws(self) -> bool:
        """Whether hypothesis draws examples, which a seed then decides."""
        return any(one.startswith("hypothesis==") for one in self.needs)


@dataclass(frozen=True)
class Explained:
    """A difference that has been looked into, and is right.

    :ivar suite: the suite's name.
    :ivar id: the test's id as in the results.
    :ivar legs: the legs in which it is seen.
    :ivar why: the reason, for a reader.
    """

    suite: str
    id: str
    legs: tuple[str, ...]
    why: str


def load_suites(names: Iterable[str] = ()) -> tuple[str, list[Suite]]:
    """Give the pytest to be used, and the suites of these names, or all.

    :raises KeyError: for a name that no suite has.
    """
    data = tomllib.loads((HERE / "suites.toml").read_text("utf-8"))
    known = {entry["name"]: _suite(entry, data["pytest"]) for entry in data["suite"]}
    return data["pytest"], [known[name] for name in (list(names) or known)]


def _suite(entry: Mapping[str, Any], pytest: str) -> Suite:
    return Suite(
        name=entry["name"],
        requirement=entry.get("sdist") or entry["wheel"],
        built="sdist" in entry,
        sha256=tuple(entry["sha256"]),
        needs=(pytest, *entry.get("needs", ())),
        args=tuple(entry["args"]),
        installed=entry.get("installed", False),
        environ=entry.get("environ", {}),
        far=tuple(entry.get("far", ())),
        shows=entry["shows"],
    )


def load_explained() -> list[Explained]:
    """Give the differences that are explained."""
    data = tomllib.loads((HERE / "differences.toml").read_text("utf-8"))
    return [
        Explained(one["suite"], one["id"], tuple(one["legs"]), one["why"])
        for one in data.get("difference", ())
    ]
