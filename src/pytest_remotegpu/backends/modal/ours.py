"""What our own part of a container's environment is made of, and one that has nothing else.

Knows this package and its needs; knows neither the service nor a project's files.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # the command lists and ends what there is without the packages that this needs
    from pytest_remotegpu.recipe import Recipe

__all__ = ["Plain", "more"]

NEEDS: Final = ("cloudpickle", "msgspec", "nvidia-ml-py", "pluggy", "pytest")


def more() -> dict[str, str]:
    """Give what an image and its mount are made of beside the recipe, by name."""
    found = hashlib.sha256()
    here = Path(__file__).parents[2]
    for path in sorted(here.rglob("*.py")):
        found.update(f"{path.relative_to(here).as_posix()}\n".encode() + path.read_bytes())
    return {"modal": version("modal"), "pytest-remotegpu's own code": found.hexdigest()[:8]}


class Plain:
    """A far side that is equipped with this package's needs only, where nobody asks for more."""

    def check(self) -> Recipe:
        """Give the recipe."""
        from pytest_remotegpu.recipe import Recipe  # noqa: PLC0415 -- see the top

        own = tuple(f"{name}=={version(name)}" for name in NEEDS)
        minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return Recipe(python=minor, package=version("pytest-remotegpu"), own=own)

    recipe = check

    def why(self, _provider: str, _more: Mapping[str, str]) -> list[str]:
        """Know of no other recipe."""
        return []

    def keep(self, _provider: str, _more: Mapping[str, str]) -> None:
        """Forget it."""
