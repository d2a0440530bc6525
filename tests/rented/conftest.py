"""A service that Modal's client takes for the real one, and a small project beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopback import LoopbackModal

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what can not run here; a client that is killed leaves its socket to the service."""
    for item in items:
        if HERE in item.path.parents:
            ignored = "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
            item.add_marker(pytest.mark.filterwarnings(ignored))
            if sys.platform != "linux":
                item.add_marker(pytest.mark.skip(reason="containers are processes of Linux"))


@pytest.fixture
def service(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LoopbackModal]:
    """Have a service, and a client that finds it; the parameter asks for the input plane.

    Sessions are those of a desk: under ``CI``, or with ``--remote-fresh``, no container would stay,
    and under a hash seed, such as tox gives, none that is warm would be of use.
    """
    monkeypatch.delenv("CI")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    plane = getattr(request, "param", False)
    with LoopbackModal(tmp_path / "modal", input_plane=plane) as found:
        for name, value in found.environ.items():
            monkeypatch.setenv(name, value)
        yield found
