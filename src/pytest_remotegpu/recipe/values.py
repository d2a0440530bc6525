"""The far environment as values: what has to be installed there, on what, and what is attached.

Values only: must not read a file, and knows nothing of pytest or of any provider.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

__all__ = [
    "READS",
    "Base",
    "Copied",
    "Files",
    "Recipe",
    "Step",
    "UvProject",
    "Volume",
    "decode",
    "encode",
]

SLIM: Final = ""
"""The reference of a base that the provider may choose: a plain one, with the wanted Python."""
READS: Final = "one reads NAME, NAME==VERSION or NAME @ ADDRESS"
"""What a requirement is, for whoever wrote another thing."""
OF_INSTALLERS: Final = ("UV_", "PIP_", "NETRC")
"""How variables begin that installers read, such as those with the password of an index."""


@dataclass(frozen=True)
class Copied:
    """A file that a Dockerfile copies: its path from the project's folder, and its digest."""

    path: str
    digest: str


@dataclass(frozen=True)
class Base:
    """What everything else is installed on.

    :ivar reference: of an image in a registry, such as ``nvidia/cuda:12.8.0-devel-ubuntu22.04``;
        empty where the provider's plain image will do.
    :ivar dockerfile: the path of a Dockerfile, instead; empty where there is none.
    :ivar text: that file's content. :ivar copied: what it copies.
    :ivar context: the folder from which it copies.
    :ivar adds_python: whether Python has to be added, since the image has none or another one.
    """

    reference: str = SLIM
    dockerfile: str = ""
    text: str = field(default="", repr=False)
    copied: tuple[Copied, ...] = ()
    context: str = ""
    adds_python: bool = False


@dataclass(frozen=True)
class UvProject:
    """A project with a ``uv.lock``; nothing of its own code is in here.

    :ivar path: of the lock file, from the project's folder.
    :ivar pyproject: what uv needs of ``pyproject.toml``, as TOML. :ivar lock: the lock file.
    :ivar extras: by name, and so the ``groups``. :ivar local: packages whose files lie in the
        project, so that they travel with it and must not be installed.
    :ivar pins: name and versions of each package in the lock file.
    """

    path: str
    pyproject: str = field(repr=False)
    lock: str = field(repr=False)
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    pins: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Files:
    """What pip's own files ask for, with all includes in place.

    :ivar sources: the files, and whatever else asks for something, from the project's folder.
    :ivar lines: requirements and options, one each. :ivar constraints: likewise.
    :ivar variables: names of environment variables that occur in them.
    """

    sources: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Volume:
    """Storage that outlives workers: its name, where it is mounted, and whether only to be read."""

    name: str
    path: str
    read_only: bool = False


@dataclass(frozen=True)
class Step:
    """Something that a project's hook does to the image.

    :ivar method: by name. :ivar args: plain data. :ivar kwargs: likewise.
    :ivar files: those that it copies, with their digests.
    """

    method: str
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Recipe:
    """All that makes the far environment; the project's own files are no part of it.

    :ivar python: major and minor version. :ivar package: this package's version.
    :ivar apt: packages of the distribution.
    :ivar own: requirements of this package itself, pytest's version among them.
    :ivar variables: names and values of variables that the image sets; none of them is secret.
    :ivar steps: what a project's hook does to the image after all that.
    :ivar secrets: names at the provider. :ivar local_secrets: names of variables of this process
        whose values are handed over; no value is ever in here.
    :ivar preload: modules that a warm process imports ahead.
    :ivar notes: what the user should know of how this was read; makes no difference.
    """

    python: str = ""
    package: str = ""
    base: Base = Base()
    apt: tuple[str, ...] = ()
    uv: UvProject | None = None
    files: Files = Files()
    own: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    steps: tuple[Step, ...] = ()
    secrets: tuple[str, ...] = ()
    local_secrets: tuple[str, ...] = ()
    volumes: tuple[Volume, ...] = ()
    preload: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def built_with(self) -> tuple[str, ...]:
        """Name the local secrets that installing needs too: those of installers and in files."""
        return tuple(
            name
            for name in self.local_secrets
            if name in self.files.variables or name.startswith(OF_INSTALLERS)
        )


def encode(recipe: Recipe) -> dict[str, Any]:
    """Give a recipe as data for JSON."""
    data: dict[str, Any] = msgspec.to_builtins(recipe)
    return data


def decode(data: Any) -> Recipe:
    """Undo :func:`encode`.

    :raises msgspec.ValidationError: for data of another kind.
    """
    return msgspec.convert(data, Recipe)
