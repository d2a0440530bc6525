"""The app of one environment: found where it is deployed already, else built and deployed.

Runs in the courier's process. Knows what an app of ours is called, and nothing of what it serves.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.backends.modal import container
from pytest_remotegpu.errors import UsageError

if sys.platform != "win32":
    import fcntl

__all__ = [
    "CLAIMS",
    "FUNCTION",
    "LONGEST",
    "PREFIX",
    "QUEUE",
    "RUN",
    "TAG",
    "chosen",
    "name_of",
    "options",
    "prepared",
    "temporary",
]

PREFIX: Final = "rgpu-"
"""Begins the names of our apps; nothing else is ever listed or stopped."""
TAG: Final = "pytest-remotegpu"
RUN: Final = "pytest-remotegpu-run"
"""The tag of an app that belongs to one run; its value is the run's id."""
FUNCTION: Final = "run"
QUEUE: Final = "-in"
CLAIMS: Final = "-claims"
"""End the names of an app's queue and of its dict."""
LONGEST: Final = 64 - len(CLAIMS)
"""Letters of an app's name: Modal takes 64 for each of the three."""
STARTUP: Final = 900
"""Seconds that a container may take from its start until it takes a call."""


def name_of(fingerprint: str, gpu: str) -> str:
    """Name the app of an environment, and of a list of cards, which needs one of its own.

    >>> name_of("0123456789abcdef", "T4"), name_of("0123456789abcdef", "H100:2,L4:2")
    ('rgpu-0123456789ab', 'rgpu-0123456789ab-h100-2-l4-2')
    """
    several = "-" + re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-") if "," in gpu else ""
    name = f"{PREFIX}{fingerprint[:12]}{several}"
    if len(name) > LONGEST:  # another long list must not have the same name
        name = f"{name[: LONGEST - 9]}-{hashlib.sha256(gpu.encode()).hexdigest()[:8]}"
    return name


def options(gpu: str, seconds: int, workers: int, idle: float) -> dict[str, Any]:
    """Give what differs from run to run without a deployment.

    Each set of these has containers of its own at Modal's, so that they hold as long as the
    settings do: what is left of a run travels with each call.

    :param gpu: a card, or cards with commas; empty for none. :param seconds: of one call at most.
    :param workers: containers at once. :param idle: seconds that a container stays without work.
    """
    chosen: dict[str, Any] = {
        "timeout": seconds,
        "max_containers": workers,
        "scaledown_window": round(idle),
    }
    if gpu and "," not in gpu:
        chosen["gpu"] = gpu
    return chosen


def prepared(
    modal: Any,
    order: Mapping[str, Any],
    image: Callable[[], AbstractContextManager[Any]],
    say: Callable[[str], None],
    say_above: Callable[[str], None],
) -> Any:
    """Give the function to call, deployed if it was not.

    :param order: of the courier: ``app``, ``gpu``, ``seconds``, ``workers``, ``idle``,
        ``secrets``, ``volumes``, ``ephemeral``, ``reason``.
    :param image: describes the image; open for as long as that is built.
    :param say: tells the user something. :param say_above: the same of what belongs to the header:
        where the service shows the app, from a thread, if the order's ``shows`` asks for that.
    """
    found = _deployed(modal, order["app"])
    if found is None:
        with _alone(order["app"], say):
            found = _deployed(modal, order["app"])
            if found is None:
                why = order["reason"] or "this environment was never deployed"
                say(f"deploys {order['app']}: {why}")
                with image() as described:
                    app_of(modal, order, described)[0].deploy(name=order["app"])
                say(f"deployed {order['app']}")
                found = modal.Function.from_name(order["app"], FUNCTION)
    if order["shows"]:  # beside the call, which need not wait for that
        threading.Thread(target=_show, args=(modal, order["app"], say_above), daemon=True).start()
    return chosen(found, order)


def _show(modal: Any, app: str, say_above: Callable[[str], None]) -> None:
    with contextlib.suppress(Exception):  # it is nothing that a test depends on
        say_above(f"{app} is shown at {modal.App.lookup(app).get_dashboard_url()}")


def _deployed(modal: Any, app: str) -> Any:
    """Find the function of an app; ``None`` where it is not deployed."""
    found = modal.Function.from_name(app, FUNCTION)
    try:
        found.hydrate()
    except modal.exception.NotFoundError:
        return None
    return found


@contextlib.contextmanager
def _alone(app: str, say: Callable[[str], None]) -> Iterator[None]:
    """Let one courier of this user deploy an app; others wait until it has."""
    if sys.platform == "win32":
        yield
        return
    path = Path(tempfile.gettempdir(), f"remotegpu-deploying-{os.getuid()}-{app}")
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise UsageError(
            f"{str(path)!r}, which keeps two sessions from deploying {app} at once, can't be "
            f"opened ({error.strerror}); remove it, or name another folder in TMPDIR"
        ) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waits for another worker, which deploys {app}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def temporary(
    modal: Any,
    order: Mapping[str, Any],
    image: Any,
    until: contextlib.ExitStack,
    say_above: Callable[[str], None],
) -> Any:
    """Give the function of an app that is there for as long as this process.

    :param until: ends the app. :param say_above: is told where the service shows it.
    """
    app, function = app_of(modal, order, image)
    until.enter_context(app.run())
    say_above(f"{order['app']} is shown at {app.get_dashboard_url()}")
    return chosen(function, order)


def chosen(function: Any, order: Mapping[str, Any]) -> Any:
    """Give a function with the options of this run."""
    asked = options(order["gpu"], order["seconds"], order["workers"], order["idle"])
    return function.with_options(**asked)


def app_of(modal: Any, order: Mapping[str, Any], image: Any) -> tuple[Any, Any]:
    """Describe the app and its function; nothing is sent by that."""
    cards = order["gpu"].split(",") if "," in order["gpu"] else None
    tags = {TAG: order["fingerprint"][:12]}
    if order["ephemeral"] and order["run"]:
        tags[RUN] = order["run"]
    app = modal.App(order["app"], tags=tags, include_source=False)
    volumes = {
        path: modal.Volume.from_name(name, create_if_missing=True).with_mount_options(
            read_only=read_only
        )
        if read_only
        else modal.Volume.from_name(name, create_if_missing=True)
        for path, (name, read_only) in order["volumes"].items()
    }
    function = app.function(
        name=FUNCTION,
        image=image,
        gpu=cards,
        secrets=[modal.Secret.from_name(name) for name in order["secrets"]],
        volumes=volumes,
        timeout=order["seconds"],
        startup_timeout=STARTUP,
        scaledown_window=round(order["idle"]),
        max_containers=order["workers"],
        include_source=False,
        is_generator=True,
    )(container.run)
    return app, function
