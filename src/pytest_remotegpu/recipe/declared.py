"""What the ini file says of the far environment: lines of text as values.

Reads texts; whether a file that they name exists is none of its business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.recipe.literals import has_password, is_confidential
from pytest_remotegpu.recipe.values import Volume

__all__ = ["Declared", "Image", "Source", "declare", "is_dockerfile", "local_secrets"]

REQUIREMENTS: Final = "remotegpu_requirements"
IMAGE: Final = "remotegpu_image"
SECRETS: Final = "remotegpu_secrets"
VOLUMES: Final = "remotegpu_volumes"

NOTHING: Final = "none"
PIP: Final = "pip:"
GROUP: Final = "group:"
LOCAL: Final = "env:"
UNDERSTOOD: Final = (
    "uv.lock[extra, group:NAME], pyproject.toml[extra, group:NAME], a requirements file such as "
    "requirements-gpu.txt, pip: REQUIREMENT, or none"
)
IMAGE_UNDERSTOOD: Final = (
    "an image such as nvidia/cuda:12.8.0-devel-ubuntu22.04 or the path of a Dockerfile, "
    "apt: PACKAGE ..., env: NAME=VALUE, python: add, python: own"
)
APT: Final = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?")
"""A Debian package, perhaps with architecture and version."""
REFERENCE: Final = re.compile(
    r"[a-z0-9]+([.-][a-z0-9]+)*(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
"""An object of the provider: a secret, a volume."""
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TAKEN: Final = ("/root", "/proc", "/sys", "/dev", "/tmp", "/usr", "/etc", "/bin", "/lib", "/.uv")  # noqa: S108 -- names of far folders
"""Where nothing may be mounted: there is what the worker itself needs."""


@dataclass(frozen=True)
class Source:
    """One thing that defines requirements.

    :ivar path: of a file, with ``/``; empty for requirements given as text.
    """

    path: str = ""
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()


@dataclass(frozen=True)
class Image:
    """What everything is installed on, as said.

    :ivar python: ``add``, ``own`` or empty where nothing is said.
    """

    reference: str = ""
    python: str = ""
    apt: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Declared:
    """What was said in all.

    :ivar sources: ``None`` where nothing is said, and the project's files are to be looked at.
    """

    sources: tuple[Source, ...] | None = None
    image: Image = Image()
    secrets: tuple[str, ...] = ()
    local_secrets: tuple[str, ...] = ()
    volumes: tuple[Volume, ...] = ()


def declare(
    requirements: Iterable[str],
    image: Iterable[str],
    secrets: Iterable[str],
    volumes: Iterable[str],
) -> Declared:
    """Read the lines of the four ini options.

    :raises UsageError: for a line that is not understood; it says what is.
    """
    names = _unique([_secret(line) for line in _lines(secrets)], SECRETS)
    return Declared(
        sources=_sources(_lines(requirements)),
        image=_image(_lines(image)),
        secrets=tuple(sorted(name for name in names if not name.startswith(LOCAL))),
        local_secrets=local_secrets(names),
        volumes=_volumes(_lines(volumes)),
    )


def local_secrets(lines: Iterable[str]) -> tuple[str, ...]:
    """Give the names of variables of this process among the lines of ``remotegpu_secrets``."""
    return tuple(
        sorted(line.removeprefix(LOCAL) for line in _lines(lines) if line.startswith(LOCAL))
    )


def _lines(given: Iterable[str]) -> list[str]:
    return [line for line in map(str.strip, given) if line and not line.startswith("#")]


def _unique(names: list[str], option: str) -> list[str]:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise UsageError(f"{option} has {name!r} twice; leave out one")
    return names


# requirements


def _sources(lines: list[str]) -> tuple[Source, ...] | None:
    if not lines:
        return None
    if NOTHING in lines:
        if len(lines) > 1:
            raise UsageError(f"{REQUIREMENTS} has {NOTHING!r} beside other lines; leave out one")
        return ()
    sources = [_source(line) for line in lines]
    _unique([source.path for source in sources if source.path], REQUIREMENTS)
    return tuple(sources)


def _source(line: str) -> Source:
    if line.startswith(PIP):
        return Source(requirements=tuple(_requirements(line)))
    match = re.fullmatch(r"([^\[\]]+?)\s*(?:\[([^\[\]]*)\])?", line)
    if match is None:
        raise UsageError(f"{REQUIREMENTS} has {line!r}, which is not understood: {UNDERSTOOD}")
    path, choice = match[1].replace("\\", "/"), match[2]
    name = PurePosixPath(path).name
    if name not in ("uv.lock", "pyproject.toml") and not name.endswith((".txt", ".in")):
        raise UsageError(
            f"{REQUIREMENTS} has {line!r}, which is not understood: {UNDERSTOOD}{_other(name)}"
        )
    if choice is None:
        return Source(path)
    if name.endswith((".txt", ".in")):
        raise UsageError(f"{REQUIREMENTS} has {line!r}: a requirements file has no extras")
    words = [word.strip() for word in choice.split(",") if word.strip()]
    for word in words:
        if not NAME.fullmatch(word.removeprefix(GROUP)):
            raise UsageError(
                f"{REQUIREMENTS} has {line!r}: {word!r} names no extra and no group; "
                "write NAME or group:NAME"
            )
    extras = {canonicalize_name(word) for word in words if not word.startswith(GROUP)}
    groups = {canonicalize_name(word.removeprefix(GROUP)) for word in words if GROUP in word}
    return Source(path, tuple(sorted(extras)), tuple(sorted(groups)))


def _other(name: str) -> str:
    """Say what to do about files of other tools."""
    ways = {
        "poetry.lock": "poetry export --with test -f requirements.txt -o requirements-gpu.txt",
        "pdm.lock": "pdm export -o requirements-gpu.txt",
        "Pipfile.lock": "pipenv requirements --dev > requirements-gpu.txt",
        "pylock.toml": "uv pip compile or uv export -o requirements-gpu.txt",
    }
    way = ways.get(name)
    if name.endswith((".yml", ".yaml")):
        return "; environments of conda are not: list what pip installs in a requirements file"
    return f"; first run {way}" if way else ""


def _requirements(line: str) -> Iterator[str]:
    """Read one requirement, or several that hold no blanks."""
    text = line.removeprefix(PIP).strip()
    for words in filter(None, ([text], text.split())):
        try:
            yield from [str(Requirement(word)) for word in words]
        except InvalidRequirement:
            continue
        return
    raise UsageError(
        f"{REQUIREMENTS} has {line!r}, which is no requirement; write pip: torch==2.11.0 or "
        "pip: numpy>=2 einops"
    )


# the image


def _image(lines: Sequence[str]) -> Image:
    references: list[str] = []
    python, apt = "", list[str]()
    variables: dict[str, str] = {}
    for line in lines:
        if line.startswith("apt:"):
            apt += _packages(line)
        elif line.startswith("env:"):
            name, value = _variable(line)
            variables[name] = value
        elif re.match(r"python:(\s|add$|own$)", line):  # and not the image python:3.12
            python = _python(line)
        else:
            references.append(line)
    if len(references) > 1:
        raise UsageError(f"{IMAGE} names two images, {references[0]!r} and {references[1]!r}")
    reference = _reference(references[0]) if references else ""
    if python and not reference:
        raise UsageError(f"{IMAGE} says python: {python} and names no image that this is about")
    return Image(reference, python, tuple(sorted(set(apt))), tuple(sorted(variables.items())))


def is_dockerfile(reference: str) -> bool:
    """Say whether this is meant as the path of a Dockerfile."""
    name = PurePosixPath(reference).name
    return "dockerfile" in name.lower() or name.lower() == "containerfile"


def _reference(text: str) -> str:
    text = text.replace("\\", "/")
    if is_dockerfile(text) or REFERENCE.fullmatch(text):
        return text
    raise UsageError(f"{IMAGE} has {text!r}, which is not understood: {IMAGE_UNDERSTOOD}")


def _packages(line: str) -> list[str]:
    names = line.removeprefix("apt:").replace(",", " ").split()
    wrong = [name for name in names if not APT.fullmatch(name)]
    if wrong or not names:
        shown = repr(wrong[0]) if wrong else "nothing"
        raise UsageError(
            f"{IMAGE} has {line!r}: {shown} is no package of apt; write apt: git ninja-build"
        )
    return names


def _variable(line: str) -> tuple[str, str]:
    name, equals, value = line.removeprefix("env:").strip().partition("=")
    if not equals or not VARIABLE.fullmatch(name.strip()):
        raise UsageError(f"{IMAGE} has {line.partition('=')[0]!r}; write env: NAME=VALUE")
    if is_confidential(name) or has_password(value):
        raise UsageError(
            f"{IMAGE} sets {name.strip()}, and whoever can use an image can read that; "
            f"write {LOCAL}{name.strip()} in {SECRETS} instead"
        )
    return name.strip(), value.strip()


def _python(line: str) -> str:
    word = line.removeprefix("python:").strip()
    if word not in ("add", "own"):
        raise UsageError(
            f"{IMAGE} has {line!r}; write python: own where the image has the Python to be used, "
            "python: add where one has to be added"
        )
    return word


# what is attached


def _secret(line: str) -> str:
    name = line.removeprefix(LOCAL)
    pattern = VARIABLE if line.startswith(LOCAL) else NAME
    if not pattern.fullmatch(name):
        # the line may well be the secret itself: it is not shown
        raise UsageError(
            f"{SECRETS} has a line that is no name; write the name of a secret at the provider, "
            f"or {LOCAL}NAME for a variable of this process. Values belong in neither"
        )
    return line


def _volumes(lines: list[str]) -> tuple[Volume, ...]:
    volumes = [_volume(line) for line in lines]
    _unique([volume.path for volume in volumes], VOLUMES)
    for inner in volumes:
        for outer in volumes:
            if inner is not outer and PurePosixPath(inner.path).is_relative_to(outer.path):
                raise UsageError(f"{VOLUMES} mounts {inner.path!r} inside {outer.path!r}")
    return tuple(sorted(volumes, key=lambda volume: volume.path))


def _volume(line: str) -> Volume:
    name, _, rest = line.partition(":")
    path, _, mode = rest.partition(":")
    parts = PurePosixPath(path).parts
    if not NAME.fullmatch(name) or mode not in ("", "ro", "rw") or not path.startswith("/"):
        raise UsageError(f"{VOLUMES} has {line!r}; a line reads NAME:/path or NAME:/path:ro")
    if ".." in parts or str(PurePosixPath(*parts[:2])) in (*TAKEN, "/"):
        raise UsageError(
            f"{VOLUMES} has {line!r}: nothing can be mounted at {path!r}; choose a folder of its "
            "own, such as /data"
        )
    return Volume(name, str(PurePosixPath(path)), mode == "ro")
