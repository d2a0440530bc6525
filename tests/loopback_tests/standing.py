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

__all__ = ["Stand", "standing"]


class Stand:
    """A service, a client of it, and ways to put functions there."""

    def __init__(self, service: LoopbackModal, client: Any) -> None:
        self.service = service
        self.client = client

    def app(self, *names: str, app: str = "far", image: Any = None, **options: Any) -> Any:
        """Make an app of functions of `far_code`."""
        made = modal.App(app)
        base = modal.Image.debian_slim() if image is None else image
        source = base.add_local_python_source("loopback_tests")
        for name in names:
            function = getattr(far_code, name)
            made.function(image=source, include_source=False, **options)(function)
        return made

    def deploy(self, *names: str, **options: Any) -> list[Any]:
        """Deploy functions, and look them up as a client of another process would."""
        made = self.app(*names, **options)
        made.deploy(client=self.client)
        return [modal.Function.from_name(made.name, name, client=self.client) for name in names]


@contextmanager
def standing(folder: Path, patch: pytest.MonkeyPatch, **options: Any) -> Iterator[Stand]:
    with LoopbackModal(folder, **options) as service:
        for name, value in service.environ.items():
            patch.setenv(name, value)
        client = modal.Client.from_credentials(*service.faults.token)
        try:
            yield Stand(service, client)
        finally:
            client.close()
