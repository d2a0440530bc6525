"""Whether the service is there at all is known within seconds, whatever the network does."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_remotegpu.backends.modal import signing
from pytest_remotegpu.backends.modal.trouble import Trouble

WITHIN = 0.5
SLACK = 1.0
"""Seconds that a machine at work may add."""


def at(*urls: str) -> Any:
    """Stand for an SDK that is set up for these URLs."""
    return SimpleNamespace(config=SimpleNamespace(config={"server_url": ",".join(urls)}))


def timed(modal: Any, **more: Any) -> tuple[Trouble | None, float]:
    began = time.monotonic()
    found = signing.reach(modal, within=WITHIN, **more)
    return found, time.monotonic() - began


@pytest.fixture
def answers() -> Iterator[int]:
    """Give a port where somebody answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def hole() -> Iterator[int]:
    """Give a port that swallows what is sent: its queue of connections is full, for good."""
    if sys.platform != "linux":
        pytest.skip("only Linux drops what its queue has no room for")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(server.getsockname())
        yield server.getsockname()[1]
        for each in waiting:
            each.close()


def test_who_answers_is_reached_at_once(answers: int) -> None:
    found, took = timed(at(f"http://127.0.0.1:{answers}"))
    assert found is None
    assert took < WITHIN


def test_one_that_answers_is_enough(answers: int, hole: int) -> None:
    """Nor is it waited for after others that do not."""
    found, took = timed(at(f"http://127.0.0.1:{hole}", f"http://127.0.0.1:{answers}"))
    assert found is None
    assert took < WITHIN


def test_one_address_that_answers_is_enough(answers: int, hole: int) -> None:
    def resolve(*_: object, **__: object) -> list[Any]:
        stream = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
        return [(*stream, ("127.0.0.1", port)) for port in (hole, answers)]

    found, took = timed(at("https://api.example"), resolve=resolve)
    assert found is None
    assert took < WITHIN


def test_nobody_who_answers_is_waited_for_once_and_not_for_each(hole: int) -> None:
    found, took = timed(at(*[f"http://127.0.0.1:{hole}"] * 3))
    assert found is not None
    assert found.what.startswith(f"Modal's service can't be reached within {WITHIN:g} s (127.0.0.1")
    assert WITHIN <= took < WITHIN + SLACK


def test_a_name_that_is_looked_up_for_ever() -> None:
    release = threading.Event()

    def resolve(*_: object, **__: object) -> list[Any]:
        release.wait(60)
        return []

    try:
        found, took = timed(at("https://api.example", "https://b.example"), resolve=resolve)
    finally:
        release.set()
    assert found is not None
    assert found.kind == "infra"
    assert "api.example: its name is still being looked up; b.example: its" in found.what
    assert WITHIN <= took < WITHIN + SLACK


def test_what_is_refused_or_unknown_is_said_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    def resolve(host: str, port: int, **more: Any) -> Any:
        if host == "unknown.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return socket.getaddrinfo(host, port, **more)

    found, took = timed(at(f"http://127.0.0.1:{port}", "http://unknown.example"), resolve=resolve)
    assert found is not None
    assert "refused" in found.what
    assert "Name or service not known" in found.what
    assert took < WITHIN


def test_a_name_that_can_be_none() -> None:
    found, _took = timed(at(f"https://{'x' * 70}.example"))
    assert found is not None
    assert "can't be reached" in found.what


@pytest.mark.parametrize(
    "url",
    ["notaurl", "", "https://", "http:///path", "http://host:port", "http://[::1", "ftp://host"],
)
@pytest.mark.parametrize("variable", [False, True])
def test_what_is_no_address_is_refused_with_its_origin(
    monkeypatch: pytest.MonkeyPatch, url: str, *, variable: bool
) -> None:
    """One of several is enough: the SDK tries them in turn, and would trip over it."""
    several = f"https://api.example,{url}" if url else url
    where = f"server_url = {several!r} in a profile of /home/me/.modal.toml"
    monkeypatch.delenv("MODAL_SERVER_URL", raising=False)
    if variable:
        monkeypatch.setenv("MODAL_SERVER_URL", several)
        where = f"MODAL_SERVER_URL={several!r}"
    modal = at(several)
    modal.config.DEFAULT_SERVER_URL = "https://api.modal.com"
    modal.config.user_config_path = "/home/me/.modal.toml"
    found, took = timed(modal)
    assert found is not None
    assert (found.kind, found.what) == ("usage", f"{where} is no address of a service")
    assert found.fix == "leave it out, or give one such as https://api.modal.com"
    assert took < WITHIN


def test_an_address_of_the_users_own_that_does_not_answer_is_named_with_its_origin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resolve(*_: object, **__: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setenv("MODAL_SERVER_URL", "https://apo.modal.com")
    found, _ = timed(at("https://apo.modal.com"), resolve=resolve)
    assert found is not None
    assert found.kind == "infra"
    assert "apo.modal.com: " in found.what
    assert "whether MODAL_SERVER_URL='https://apo.modal.com' is meant" in found.fix
    monkeypatch.delenv("MODAL_SERVER_URL")
    found, _ = timed(at("https://api.modal.com"), resolve=resolve)
    assert found is not None
    assert "status.modal.com" in found.fix


def test_a_socket_of_this_host_is_not_tried() -> None:
    assert signing.reach(at("unix:/run/modal.sock")) is None
