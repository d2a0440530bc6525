"""What a project's hook does to an image, recorded: it is done elsewhere, and part of the recipe.

Stands in for the provider's image, which is made in a process that knows nothing of this session.
Values only, apart from the files that a step copies, which are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.recipe import copies
from pytest_remotegpu.recipe.declared import APT
from pytest_remotegpu.recipe.images import given_away
from pytest_remotegpu.recipe.literals import WAY_OUT, has_password, is_confidential
from pytest_remotegpu.recipe.requirements import public, read_text
from pytest_remotegpu.recipe.values import Step

__all__ = ["Image"]

HOOK: Final = "pytest_remotegpu_modal_image"
METHODS: Final = (
    "add_local_dir",
    "add_local_file",
    "apt_install",
    "dockerfile_commands",
    "env",
    "micromamba_install",
    "pip_install",
    "run_commands",
    "uv_pip_install",
    "workdir",
)
"""Those of ``modal.Image`` that add something to an image."""
COPY: Final = ("add_local_dir", "add_local_file")
READ: Final = frozenset({"requirements", "spec_file"})
"""Arguments that name files which the SDK reads and sends."""
LOCAL: Final = frozenset({"context_dir", "context_files"})
"""Arguments that name files in a way that can't be followed."""


@dataclass(frozen=True)
class Image:
    """An image as it will be: each method gives another one, as those of ``modal.Image`` do.

    :ivar steps: what was done to it. :ivar root: the folder that paths begin at.
    :ivar notes: what the user should know of that.
    :ivar made: names of all that was done to the first image and those made of it, wanted or not.
    """

    root: Path
    steps: tuple[Step, ...] = field(default=())
    notes: tuple[str, ...] = field(default=(), compare=False)
    made: list[str] = field(default_factory=list, compare=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in METHODS:
            raise AttributeError(
                f"{HOOK} can't use {name!r} of an image; it records {', '.join(METHODS)}"
            )
        return lambda *args, **kwargs: self._with(name, args, kwargs)

    def _with(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Self:
        for value in (*args, *kwargs.values()):
            if not _is_plain(value):
                raise UsageError(
                    f"{HOOK}: {name} was given {type(value).__name__}, and only texts, numbers, "
                    "lists and dictionaries of them can be passed on; name secrets by their names"
                )
        step = Step(name, list(map(_text, args)), {key: _text(kwargs[key]) for key in kwargs})
        _check_values(step)
        _check_secrets(step)
        notes: tuple[str, ...] = ()
        if name in COPY:
            step, notes = self._copy(step)
        elif READ & kwargs.keys():
            step = self._reads(step)
        self.made.append(name)
        return type(self)(self.root, (*self.steps, step), (*self.notes, *notes), self.made)

    def _copy(self, step: Step) -> tuple[Step, tuple[str, ...]]:
        """Let a step copy files as they are now: their place is made absolute, their content told.

        :return: also notes on what of a folder is kept back.
        :raises UsageError: where they are not there, or may not be in an image.
        """
        kwargs = {**step.kwargs, "copy": True}
        place = kwargs.pop("local_path", None) or (step.args[0] if step.args else None)
        if not isinstance(place, str):
            raise UsageError(f"{HOOK}: {step.method} needs the path of what it copies")
        top = self._there(step.method, place)
        if top.is_dir() is not (step.method == "add_local_dir"):
            other = "add_local_dir" if top.is_dir() else "add_local_file"
            raise UsageError(f"{HOOK}: {step.method} copies {place!r}; use {other} for that")
        if top.is_dir() and copies.is_whole(self.root, top):
            raise UsageError(
                f"{HOOK}: {step.method} copies {place!r}, so a copy of your code would be in the "
                "image, and tests might import that instead of the files that travel; copy the "
                "files and folders that the image needs by name"
            )
        found = copies.look(self.root, top)
        files = tuple(
            (file.relative_to(top.parent).as_posix(), copies.digest(file)) for file in found.files
        )
        notes = tuple(
            f"{step.method}({place!r}) leaves out {file.relative_to(top).as_posix()!r}, which "
            f"{reason}"
            for file, reason in found.kept_back
        )
        return Step(step.method, [str(top), *step.args[1:]], kwargs, files), notes

    def _reads(self, step: Step) -> Step:
        """Let a step read files as they are now, such as requirements."""
        kwargs = dict(step.kwargs)
        files: list[tuple[str, str]] = []
        for key in sorted(READ & kwargs.keys()):
            if not kwargs[key]:
                continue
            several = isinstance(kwargs[key], list | tuple)
            tops = [
                self._there(step.method, str(place))
                for place in (kwargs[key] if several else [kwargs[key]])
            ]
            for top in tops:
                for number, line in enumerate(read_text(top, top.name).splitlines(), 1):
                    public(line, f"{HOOK}: {top.name}, line {number}")
            files += [(top.name, copies.digest(top)) for top in tops]
            kwargs[key] = list(map(str, tops)) if several else str(tops[0])
        return Step(step.method, step.args, kwargs, tuple(files))

    def _there(self, method: str, place: str) -> Path:
        """Find what a step copies or reads.

        :raises UsageError: where there is no such thing, or it may be in no image.
        """
        top = self.root / place
        if not top.exists():
            raise UsageError(f"{HOOK}: {method} copies {place!r}, and there is no such file")
        reason = copies.objection(self.root, Path(os.path.normpath(top)))
        if reason is not None:
            raise UsageError(f"{HOOK}: {method} copies {place!r}, which {reason}; {copies.WAY_OUT}")
        return top


def _check_values(step: Step) -> None:
    """Refuse what would only fail once an image is being built.

    :raises UsageError: it shows the value.
    """
    if step.method == "apt_install":
        for name in _texts(step.args):
            if not APT.fullmatch(name):
                raise UsageError(
                    f"{HOOK}: apt_install was given {name!r}, which is no package of apt; write "
                    'apt_install("git", "ninja-build")'
                )
    if step.method == "workdir" and not all(isinstance(arg, str) and arg for arg in step.args):
        raise UsageError(f"{HOOK}: workdir was given {step.args[0]!r}; name a folder, such as /w")


def _check_secrets(step: Step) -> None:
    """Refuse what would give a secret away to whoever can use the image.

    :raises UsageError: it names the variable, never the value.
    """
    lines = list(_texts([*step.args, *step.kwargs.values()]))
    tables = [*step.args, step.kwargs] if step.method == "env" else []
    tables += [step.kwargs.get("vars"), step.kwargs.get("env"), step.kwargs.get("build_args")]
    found = [
        f"sets {name}"
        for table in tables
        if isinstance(table, dict)
        for name, value in table.items()
        if value and is_confidential(name)
    ]
    if step.method in ("run_commands", "dockerfile_commands"):
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if step.method == "run_commands":
                word, rest = "RUN", line
            elif word.upper() in ("COPY", "ADD") and "--from" not in rest:
                raise UsageError(
                    f"{HOOK}: {step.method} has {word} from this machine, which can't be followed; "
                    "use add_local_file or add_local_dir"
                )
            found += given_away(word.upper(), rest)
    if any(map(has_password, lines)):
        found.append("has an address with a password in it")
    for key in LOCAL & step.kwargs.keys():
        raise UsageError(
            f"{HOOK}: {step.method} has {key}=, which can't be followed; use add_local_file or "
            "add_local_dir"
        )
    if found:
        raise UsageError(
            f"{HOOK}: {step.method} {found[0]}, and {WAY_OUT}; where tests need it, write "
            "env:NAME in remotegpu_secrets, and where the step does, name a secret of the "
            "provider: secrets=[...]"
        )


def _texts(value: Any) -> Iterator[str]:
    """Give all texts in plain data."""
    if isinstance(value, str):
        yield from value.replace("\\\n", " ").splitlines()
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(part) for key, part in value.items())
    return value is None or isinstance(value, str | int | float | Path)
