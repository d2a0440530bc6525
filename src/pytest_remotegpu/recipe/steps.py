"""What a project's hook does to an image, recorded: it is done elsewhere, and part of the recipe.

Stands in for the provider's image, which is made in a process that knows nothing of this session.
Values only, apart from the files that a step copies, which are read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from pytest_remotegpu.errors import UsageError
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


@dataclass(frozen=True)
class Image:
    """An image as it will be: each method gives another one, as those of ``modal.Image`` do.

    :ivar steps: what was done to it. :ivar root: the folder that paths begin at.
    """

    root: Path
    steps: tuple[Step, ...] = field(default=())

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
        step = self._copy(step) if name in COPY else step
        return type(self)(self.root, (*self.steps, step))

    def _copy(self, step: Step) -> Step:
        """Let a step copy files as they are now: their place is made absolute, their content told.

        :raises UsageError: where they are not there.
        """
        kwargs = {**step.kwargs, "copy": True}
        place = kwargs.pop("local_path", None) or (step.args[0] if step.args else None)
        if not isinstance(place, str):
            raise UsageError(f"{HOOK}: {step.method} needs the path of what it copies")
        top = self.root / place
        if not top.exists():
            raise UsageError(f"{HOOK}: {step.method} copies {place!r}, and there is no such file")
        inside = sorted(top.rglob("*")) if top.is_dir() else [top]
        files = tuple(
            (file.relative_to(top.parent).as_posix(), hashlib.sha256(file.read_bytes()).hexdigest())
            for file in inside
            if file.is_file()
        )
        return Step(step.method, [str(top), *step.args[1:]], kwargs, files)


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(part) for key, part in value.items())
    return value is None or isinstance(value, str | int | float | Path)
