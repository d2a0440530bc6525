"""Failures of a far side explained: by files that did not travel, packages and builds of there.

Text in, lines out. Reads what is installed here; knows no worker and no order.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from pytest_remotegpu import environment, lacking, missing, software
from pytest_remotegpu.config import Settings
from pytest_remotegpu.demands import Demands
from pytest_remotegpu.further import Further
from pytest_remotegpu.protocol.hello import Hello
from pytest_remotegpu.protocol.inventory import Has
from pytest_remotegpu.unmet import Unmet

__all__ = ["Explaining"]


class Explaining:
    """Explains what fails on the far side of one session.

    :param root: the project's folder. :param cwd: the session's.
    :param further: what is sent of packages that lie elsewhere.
    :param same: whether the far side works in the project's folder itself.
    :ivar why_left_out: says why a path, seen from the root, did not travel; ``None`` where nothing
        has to.
    """

    def __init__(
        self, root: Path, cwd: str, settings: Settings, further: Further, *, same: bool
    ) -> None:
        self._root = root
        self._cwd = cwd
        self._further = further
        self._same = same
        self._there = lacking.There()
        self._demands = Demands(root, settings)
        self.why_left_out: Callable[[str], str | None] | None = None

    def meet(self, hello: Hello, *, made: bool) -> None:
        """Learn what a far side has, and whether its environment is made for us."""
        self._there = lacking.There(hello.executable, made, self._same, hello.extra)

    def take(self, has: Has) -> None:
        """Learn what is installed there."""
        self._demands.take(has)

    def unmet(self) -> Unmet | None:
        """Give what is declared and not there, where something has failed for such a thing."""
        return self._demands.unmet(self._there)

    def explain(self, text: str, far_root: str, *, ends: bool = False) -> list[str]:
        """Say of files and modules that a failure lacks, and that are here, why they didn't travel.

        :param text: the failure's. :param far_root: the project's folder there; empty where that
            is not known.
        :param ends: whether the session ends with this failure, so that what is known of others
            has to be said now.
        """
        folders = list(dict.fromkeys([str(self._root), *environment.inside(sys.path, self._root)]))
        found, modules = self._left_out(text, far_root, folders)
        names = lacking.packages(modules, lambda name: lacking.has_module(name, folders))
        self._demands.lack(names)
        found += lacking.in_words(names, self._there, lacking.requirement_for)
        found += self._demands.say(self._there) if ends else []
        return found + software.of_failure(text, self._there.software)

    def of_start(self, text: str) -> str:
        """Say why a far session could not start: for a file of here by why it was not sent.

        :param text: pytest's, which names the file by its place there.
        """
        lines = [self._why_no_argument(line) or line for line in text.splitlines()]
        return "\n".join(dict.fromkeys(lines))

    def _why_no_argument(self, line: str) -> str | None:
        path = missing.argument_of(line, self._root.name)
        return self.why_left_out(path) if path and self.why_left_out is not None else None

    def _left_out(
        self, text: str, far_root: str, folders: list[str]
    ) -> tuple[list[str], list[str]]:
        """Say why files and modules did not travel, and which modules no such reason explains."""
        modules = missing.modules_of(text)
        explain = self.why_left_out
        if explain is None:
            return [], modules
        root = self._root
        found: dict[str, None] = {}
        for path in missing.files_of(text, far_root, root.name):
            for here in (os.path.normpath(Path(self._cwd, path)), str(root / path)):
                found.setdefault(explain(os.path.relpath(here, root)) or "")
        unexplained = []
        for module in modules:
            paths = missing.paths_of(module, folders)
            whys = (explain(os.path.relpath(path, root)) for path in paths)
            why = next(filter(None, whys), "") or self._further.explain(module, sys.path)
            why = why or lacking.outside(module, root)
            found.setdefault(why)
            if not why:
                unexplained.append(module)
        return list(filter(None, found)), unexplained
