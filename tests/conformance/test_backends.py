"""The published conformance kit over each backend of this package and one of Modal's shape."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import fakes
import sshd
from pytest_remotegpu import backends
from pytest_remotegpu.backends.base import Backend, Site
from pytest_remotegpu.testing import BackendConformance

if TYPE_CHECKING:
    from loopback import LoopbackModal

SITE = Site(sys.executable, sys.executable, sys.platform)
NOWHERE = Site("/nonexistent/python", "/nonexistent/python", sys.platform)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Sshd]:
    """Have an SSH server, where one is installed."""
    if reason := sshd.why_not():
        pytest.skip(reason)
    with sshd.serving(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackModal]:
    """Have a service that Modal's client takes for the real one."""
    pytest.importorskip("modal")
    from loopback import LoopbackModal  # noqa: PLC0415 -- needs Modal's client

    with LoopbackModal(tmp_path_factory.mktemp("modal")) as service:
        yield service


class TestLocalCpu(BackendConformance):
    """Processes of this host, in the user's own tree."""

    @pytest.fixture
    def backend(self) -> Backend:
        return backends.find("local", "cpu", SITE)

    @pytest.fixture
    def unable(self) -> Backend:
        return backends.find("local", "cpu", NOWHERE)


class TestCommand(BackendConformance):
    """A command in front of the worker; the files travel, and its environment pretends."""

    @pytest.fixture
    def backend(self) -> Backend:
        return backends.find("command", "env PYTEST_REMOTEGPU_PRETEND_GPUS=2", SITE)

    @pytest.fixture(params=["env", "/nonexistent/ssh"], ids=["ends at once", "can't be started"])
    def unable(self, request: pytest.FixtureRequest) -> Backend:
        return backends.find("command", request.param, NOWHERE)


class TestSsh(BackendConformance):
    """A real server on loopback; what ``ssh`` can't reach is unable to start."""

    @pytest.fixture(autouse=True)
    def _known(self, server: sshd.Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let ``ssh`` know its hosts, before anything asks for the environment."""
        monkeypatch.setenv("PATH", server.path)

    @pytest.fixture
    def backend(self) -> Backend:
        return backends.find("ssh", sshd.HOST, SITE)

    @pytest.fixture(params=[sshd.HOST, "closedbox"], ids=["no interpreter", "no connection"])
    def unable(self, request: pytest.FixtureRequest) -> Backend:
        return backends.find("ssh", request.param, NOWHERE)


class TestModal(BackendConformance):
    """Modal's real client and container entrypoint, and a service of ours on loopback."""

    @pytest.fixture(autouse=True)
    def _known(self, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let Modal's client find the service, before anything asks for the environment."""
        for name, value in service.environ.items():
            monkeypatch.setenv(name, value)

    @pytest.fixture
    def backend(self) -> Backend:
        return backends.find("modal", "T4", SITE)

    @pytest.fixture
    def unable(self, monkeypatch: pytest.MonkeyPatch) -> Backend:
        monkeypatch.setenv("MODAL_SERVER_URL", "http://127.0.0.1:9")
        return backends.find("modal", "T4", SITE)


class TestOneRequest(BackendConformance):
    """One request out, a generator back, small items meanwhile: the shape of a serverless call."""

    @pytest.fixture
    def backend(self) -> Backend:
        return fakes.OneRequest()

    @pytest.fixture
    def unable(self) -> Backend:
        return fakes.OneRequest(NOWHERE.python)
