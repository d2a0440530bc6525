"""``python -m pytest_remotegpu.equipment FILE``: what sessions of this project ask of a far side.

For the doctor, which imports no pytest: configures pytest as a session would, writes to the file
what the far environment is made of, with the settings that tell containers apart, and ends before
anything is collected.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_remotegpu import recipe as recipes
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.outfit import KEPT, Outfit
from pytest_remotegpu.plugin import settings_of

__all__ = ["DONE", "main"]

DONE: Final = 0


class Asker:
    """Asks a session that is configured, and ends it.

    :param path: where the answer goes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Ask, once all others have had their say."""
        try:
            answer = _answer(config)
        except UsageError as error:
            answer = {"error": str(error)}
        self._path.write_text(json.dumps(answer), encoding="utf-8")
        pytest.exit("all is said", returncode=DONE)


def _answer(config: pytest.Config) -> dict[str, Any]:
    settings = settings_of(config)
    outfit = Outfit(config, settings, dict(os.environ))
    cache: Any = getattr(config, "cache", None)
    return {
        "recipe": recipes.encode(outfit.recipe()),
        "kept": cache.get(KEPT, {}) if cache is not None else {},
        "root": str(config.rootpath),
        "site": {
            "idle": settings.idle,
            "fresh": settings.fresh,
            "preload": list(settings.preload),
            "run_limit": settings.run_timeout,
            "workers": settings.workers,
            "prices": dict(settings.prices),
            "chosen": [each.name for each in settings.origins if each.origin != "default"],
        },
    }


def main(words: list[str]) -> int:
    """Ask the project of the current folder.

    :return: pytest's exit status.
    """
    return int(pytest.main(["-p", "no:terminal"], plugins=[Asker(Path(words[0]))]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
