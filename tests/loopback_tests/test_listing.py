"""What `remotegpu ps` and `remotegpu stop` do at Modal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import modal
import pytest
from grpclib import Status
from modal_proto import api_pb2

from pytest_remotegpu.backends.base import Site
from pytest_remotegpu.backends.modal import listing
from pytest_remotegpu.backends.modal.deploying import TAG
from pytest_remotegpu.errors import FarSideError

from . import far_code
from .standing import Stand


def deploy(stand: Stand, name: str, tags: dict[str, str]) -> None:
    app = modal.App(name, tags=tags)
    image = modal.Image.debian_slim().add_local_python_source("loopback_tests")
    app.function(name="run", image=image, include_source=False)(far_code.spoken)
    app.deploy(client=stand.client)


def test_only_ours(stand: Stand) -> None:
    deploy(stand, "rgpu-ours", {TAG: "x"})
    deploy(stand, "rgpu-untagged", {})
    deploy(stand, "foreign", {TAG: "x"})
    apps = listing.Apps()
    assert [each.id for each in apps.list()] == ["rgpu-ours"]
    for name in ("rgpu-untagged", "foreign"):
        with pytest.raises(FarSideError, match="no app of pytest-remotegpu"):
            apps.stop(name)
    apps.stop("rgpu-ours")
    assert apps.list() == []


def test_nothing_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MODAL_TOKEN_ID", raising=False)
    monkeypatch.setenv("MODAL_CONFIG_PATH", "/nowhere")
    assert listing.make(Site("", sys.executable)) is None


def test_a_service_that_refuses(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 -- it stands
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "wrong")
    with pytest.raises(FarSideError, match="does not take this token") as caught:
        listing.Apps().list()
    assert "\n" not in str(caught.value)


def test_logs(stand: Stand) -> None:
    deploy(stand, "rgpu-ours", {TAG: "x"})
    modal.Function.from_name("rgpu-ours", "run", client=stand.client).remote("a-word")
    deadline = time.monotonic() + 10
    while "a-word" not in (lines := list(listing.Apps().logs("rgpu-ours"))):
        assert time.monotonic() < deadline, lines
    with pytest.raises(FarSideError, match="no app of pytest-remotegpu"):
        list(listing.Apps().logs("foreign"))


def test_an_app_says_what_was_counted_and_where_it_is_shown(stand: Stand) -> None:
    deploy(stand, "rgpu-ours", {TAG: "x"})
    function = modal.Function.from_name("rgpu-ours", "run", client=stand.client)
    function.with_options(timeout=77).remote("a-word")
    (found,) = listing.Apps().list()
    (app,) = stand.service.apps
    counted = "0 calls under way, 1 ended within a day (0 failed), 1 containers started"
    words = ("app logs --follow", "container list --app-id", "app stop")
    assert found.commands == [f"modal {each} {app.id}" for each in words]
    assert found.about == f"deployed, {counted}, https://modal.com/id/{app.id}"


def test_what_is_said_of_use_is_what_the_service_knows(stand: Stand) -> None:
    """What has containers may be in use, and is paid for; what has none is neither."""
    deploy(stand, "rgpu-ours", {TAG: "x"})
    apps = listing.Apps()
    kept = "no container is up: nothing is paid for, it is kept for the next run"
    (found,) = apps.list()
    assert (found.busy, found.paid, found.use) == (False, False, kept)
    function = modal.Function.from_name("rgpu-ours", "run", client=stand.client)
    function.with_options(scaledown_window=60).remote("a-word")
    (found,) = apps.list()
    up = "1 container is up, at work or kept warm: paid for"
    assert (found.busy, found.paid, found.use) == (True, True, up)
    stand.service.lose(stand.service.running[0])
    stand.service.wait_until(lambda: not stand.service.running, 10)
    (found,) = apps.list()
    assert (found.busy, found.paid, found.use) == (False, False, kept)


def test_an_app_that_is_not_deployed_says_what_it_is(stand: Stand) -> None:
    """One of a session, and one whose deployment was broken off, or is under way."""
    app = modal.App("rgpu-own", tags={TAG: "x"})
    own = "no container is up: nothing is paid for, it ends by itself once its session has"
    with app.run(client=stand.client):
        (found,) = listing.Apps().list()
        assert found.about.startswith("a session's own, https://")
        assert (found.busy, found.paid, found.use) == (False, False, own)
        (made,) = (each for each in stand.service.apps if each.live)
        made.state = api_pb2.APP_STATE_INITIALIZING
        (found,) = listing.Apps().list()
        assert found.about.startswith("a deployment that is not complete, https://")
        assert (found.busy, found.paid, found.use) == (False, False, own)


def test_what_the_service_does_not_tell_is_not_called_free(stand: Stand) -> None:
    deploy(stand, "rgpu-ours", {TAG: "x"})
    stand.service.faults.refuse("TaskList", Status.PERMISSION_DENIED, "no", times=None)
    (found,) = listing.Apps().list()
    unknown = "whether a container is up, and paid for, is not known"
    assert (found.busy, found.paid, found.use) == (True, None, unknown)


def test_a_log_is_followed_until_its_app_ends(stand: Stand) -> None:
    """What is written once the newest lines were shown comes too, and nothing twice."""
    deploy(stand, "rgpu-ours", {TAG: "x"})
    function = modal.Function.from_name("rgpu-ours", "run", client=stand.client)
    function.remote("before")
    lines = listing.Apps().follow("rgpu-ours")
    seen = list(iter(lines.__next__, "before"))
    function.remote("later")
    seen += iter(lines.__next__, "later")
    listing.Apps().stop("rgpu-ours")
    seen += list(lines)
    assert not {"before", "later"} & set(seen)
    with pytest.raises(FarSideError, match="no app of pytest-remotegpu"):
        next(listing.Apps().follow("foreign"))


def test_the_command_follows_a_log_until_ctrl_c(stand: Stand) -> None:
    deploy(stand, "rgpu-ours", {TAG: "x"})
    function = modal.Function.from_name("rgpu-ours", "run", client=stand.client)
    command = [sys.executable, "-m", "pytest_remotegpu", "logs", "-f", "modal:rgpu-ours"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "==> modal:rgpu-ours <==\n"
        function.remote("a-word")
        assert "a-word\n" in iter(process.stdout.readline, "")
        os.killpg(process.pid, signal.SIGINT)
        _, wrong = process.communicate(timeout=30)
    assert (process.returncode, wrong) == (0, "")


def test_the_vendor_commands_are_taken(stand: Stand) -> None:
    """Modal's own command understands those that are shown."""
    deploy(stand, "rgpu-ours", {TAG: "x"})
    (found,) = listing.Apps().list()
    for command in found.commands[1:]:
        done = subprocess.run(
            [sys.executable, "-P", "-m", *command.split(), *["--yes"] * ("stop" in command)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert not any(app.live for app in stand.service.apps)
