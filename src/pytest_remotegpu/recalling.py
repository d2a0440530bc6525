"""What a session knows of files that it has no machine collect: what one said of them last.

Brings a session's settings, backend and files together with what is remembered; what is shown of
it, it does not know.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import pytest

from pytest_remotegpu.backends.base import Backend, Describes, Prices
from pytest_remotegpu.config import Settings
from pytest_remotegpu.errors import RemoteGpuError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import nodes
from pytest_remotegpu.remembered import Project, Remembered, asked_by
from pytest_remotegpu.shipping import LEFT_OUT, OURS, Shipping

__all__ = ["Recall"]


class Recall:
    """The trees that one session keeps or is shown; none where a look costs nothing anyway."""

    def __init__(
        self, config: pytest.Config, settings: Settings, backend: Backend, shipping: Shipping
    ) -> None:
        self._config = config
        self._backend = backend
        self._shipping = shipping
        self._wanted = (
            isinstance(backend, Prices)
            and not settings.rev
            and not settings.conftest_far
            and not shipping.sender.worker
        )

    @functools.cached_property
    def _remembered(self) -> Remembered | None:
        cache: pytest.Cache | None = getattr(self._config, "cache", None)
        if not self._wanted or cache is None:
            return None
        try:
            folder = cache.mkdir("remotegpu-collected")
            described = self._backend.describe() if isinstance(self._backend, Describes) else [""]
            asked = asked_by(
                self._config,
                self._backend.name,
                described[0],
                (*OURS, *LEFT_OUT),
                self._shipping.named_variables(),
            )
        except (OSError, RemoteGpuError):
            return None
        if not asked:
            return None
        return Remembered(self._config.rootpath, Path(folder), asked)

    @functools.cached_property
    def _project(self) -> Project | None:
        try:
            self._shipping.take_snapshot()
        except RemoteGpuError:
            return None
        taken = self._shipping.snapshot
        return None if taken is None else Project(taken, self._shipping.further.snapshots)

    def note(
        self, path: str, number: int, shape: Shape, data: bytes, sources: Iterable[str]
    ) -> None:
        """Take note of a tree, see :meth:`Remembered.note`."""
        if self._remembered is not None:
            self._remembered.note(path, number, shape, data, sources)

    def forget(self, path: str) -> None:
        """Keep nothing of a file that runs here after all."""
        if self._remembered is not None:
            self._remembered.forget(path)

    def keep(self) -> None:
        """Write down what was noted."""
        if self._remembered is not None and self._project is not None:
            self._remembered.keep(self._project)

    def find(self, path: str, shape: Shape) -> tuple[list[nodes.Tree], float]:
        """Give a file's trees, and when they were collected; see :meth:`Remembered.find`."""
        if self._remembered is None or self._project is None:
            return [], 0.0
        return self._remembered.find(path, shape, self._project)
