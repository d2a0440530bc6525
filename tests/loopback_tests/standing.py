"""A service, a client that knows only it, and ways to put functions there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import modal
import pytest

from loopback import LoopbackModal

from . import far_code

__all__ = ["Stand", "connected", "standing"]


class Stand:
    """A service, a client of it, and ways to put functions there."""

    def __init__(self, service: LoopbackModal | None, client: Any) -> None:
        self._service = service
        self.client = client
        self.made: dict[str, Any] = {}  # the functions of the newest app

    @property
    def service(self) -> LoopbackModal:
        """The service, where it is in this process."""
        assert self._service is not None
        return self._service

    def app(self, *names: str, app: str = "far", image: Any = None, **options: Any) -> Any:
        """Make an app of functions of `far_code`."""
        made = modal.App(app)
        base = modal.Image.debian_slim() if image is None else image
        source = base.add_local_python_source("loopback_tests")
        for name in names:
            function = getattr(far_code, name)
            put = made.function(image=source, include_source=False, **options)
            self.made[name] = put(function)
        return made

    def deploy(self, *names: str, **options: Any) -> list[Any]:
        """Deploy functions, and look them up as a client of another process would."""
        made = self.app(*names, **options)
        made.deploy(client=self.client)
        return [modal.Function.from_name(made.name, name, client=self.client) for name in names]


@contextmanager
def connected(token_id: str, token_secret: str) -> Iterator[Any]:
    """Make a client, and close it: the oldest supported one has no `close` of its own."""
    client = modal.Client.from_credentials(token_id, token_secret)
    try:
        yield client
    finally:
        client.__exit__(None, None, None)


@contextmanager
def standing(folder: Path, patch: pytest.MonkeyPatch, **options: Any) -> Iterator[Stand]:
    with LoopbackModal(folder, **options) as service:
        for name, value in service.environ.items():
            patch.setenv(name, value)
        with connected(*service.faults.token) as client:
            yield Stand(service, client)
