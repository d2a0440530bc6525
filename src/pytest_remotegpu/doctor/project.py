"""What sessions of the project in the current folder ask of a far side.

Has a process with pytest find out. Knows recipes as values, and nothing of the checks.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu import recipe as recipes
from pytest_remotegpu.backends.base import Site
from pytest_remotegpu.errors import FarSideError, UsageError
from pytest_remotegpu.recipe import Recipe

__all__ = ["asks"]

PATIENCE: Final = 60.0
"""Seconds that pytest may take to be configured."""
TAIL: Final = 3
"""Lines of what it writes that are shown where it can't be."""


class _Asked:
    """A recipe that is known, and those of the sessions before.

    :param kept: by provider.
    """

    def __init__(self, recipe: Recipe, kept: Mapping[str, Any]) -> None:
        self._recipe = recipe
        self._kept = kept

    def check(self) -> Recipe:
        """Give the recipe."""
        return self._recipe

    recipe = check

    def why(self, provider: str, more: Mapping[str, str]) -> list[str]:
        """Say how the recipe differs from the one that was used last."""
        return recipes.why(self._kept.get(provider), recipes.to_plain(self._recipe, more))

    def keep(self, _provider: str, _more: Mapping[str, str]) -> None:
        """Leave the project's cache alone."""


def asks(site: Site, environ: Mapping[str, str]) -> Site:
    """Give a site as a session of this project would have it.

    :param site: of the doctor's.
    :raises UsageError: where the project's files or settings can't be meant.
    :raises FarSideError: where pytest can't even be configured.
    """
    with tempfile.TemporaryDirectory(prefix="remotegpu-doctor-") as folder:
        answer = _answer(site, environ, Path(folder, "answer.json"))
    if "error" in answer:
        raise UsageError(answer["error"])
    found = answer["site"]
    return replace(
        site,
        root=answer["root"],
        wanted=_Asked(recipes.decode(answer["recipe"]), answer["kept"]),
        preload=tuple(found["preload"]),
        chosen=frozenset(found["chosen"]),
        idle=found["idle"],
        fresh=found["fresh"],
        run_limit=found["run_limit"],
        workers=found["workers"],
        prices=found["prices"],
    )


def _answer(site: Site, environ: Mapping[str, str], path: Path) -> dict[str, Any]:
    command = [site.executable, "-m", "pytest_remotegpu.equipment", str(path)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            env=dict(environ),
            timeout=PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise FarSideError(
            f"pytest is not configured within {PATIENCE:g} s",
            fix="pytest --collect-only shows what hangs",
        ) from None
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-TAIL:]
    raise FarSideError(
        f"pytest can't be configured here: {' / '.join(last)}",
        fix="pytest --collect-only shows all of it",
    )
