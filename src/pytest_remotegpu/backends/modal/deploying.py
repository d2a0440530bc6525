"""The app of one environment: found where it is deployed already, else built and deployed.

Runs in the courier's process. Knows what an app of ours is called, and nothing of what it serves.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from pytest_remotegpu.backends.modal import container
from pytest_remotegpu.backends.modal.alone import alone
from pytest_remotegpu.errors import UsageError

__all__ = [
    "CLAIMS",
    "FUNCTION",
    "LONGEST",
    "PREFIX",
    "QUEUE",
    "RUN",
    "TAG",
    "check",
    "chosen",
    "name_of",
    "options",
    "prepared",
    "show",
    "temporary",
    "why",
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
    image: Callable[[str], AbstractContextManager[Any]],
    say: Callable[[str], None],
    held: contextlib.ExitStack,
) -> Any:
    """Give the function to call, deployed if it was not.

    :param order: of the courier: ``app``, ``gpu``, ``seconds``, ``workers``, ``idle``,
        ``secrets``, ``volumes``, ``ephemeral``, ``reason``, ``uncounted``.
    :param image: is told why there has to be an app, and describes its image; open for as long as
        that is built.
    :param say: tells the user something.
    :param held: keeps others of this user from deploying it meanwhile.
    :raises UsageError: as :func:`check`, where it would have to be deployed.
    """
    found = _deployed(modal, order["app"])
    if found is None:
        waits = f"waits for another worker, which deploys {order['app']}"
        held.enter_context(alone(order["app"], os.environ, lambda: say(waits)))
        found = _deployed(modal, order["app"])
    if found is None:
        check(order)
        with image(why(order)) as described:
            app_of(modal, order, described)[0].deploy(name=order["app"])
        say(f"deployed {order['app']}")
        found = modal.Function.from_name(order["app"], FUNCTION)
    return chosen(found, order)


def check(order: Mapping[str, Any]) -> None:
    """Look whether an image may be built for an order.

    :raises UsageError: where that rents a card, and the user has set a limit to the cost, which
        nothing here could keep then; ``uncounted`` in the order says so.
    """
    for what in order["uncounted"]:
        way = (
            "leave out --remote-max-cost"
            if order["ephemeral"]
            else "build once without that option"
        )
        raise UsageError(f"{what}, which --remote-max-cost can't limit; leave out gpu=, or {way}")


def show(modal: Any, app: str, show_page: Callable[[str], None]) -> None:
    """Tell where the service shows an app, from a thread: a call need not wait for that.

    :param show_page: is given the address.
    """

    def look() -> None:
        with contextlib.suppress(Exception):  # it is nothing that a test depends on
            show_page(modal.App.lookup(app).get_dashboard_url())

    threading.Thread(target=look, daemon=True).start()


def why(order: Mapping[str, Any]) -> str:
    """Say what is built, and why; ``reason`` in an order is how the environment has changed."""
    found = order["reason"]
    if not found and order["ephemeral"]:
        found = "--remote-ephemeral leaves none for a second session"
    elif not found and "," in order["gpu"]:
        found = f"none was deployed yet for {order['gpu']}"
    return f"builds {order['app']}, since {found or 'it was never deployed'}"


def _deployed(modal: Any, app: str) -> Any:
    """Find the function of an app; ``None`` where it is not deployed."""
    found = modal.Function.from_name(app, FUNCTION)
    try:
        found.hydrate()
    except modal.exception.NotFoundError:
        return None
    return found


def temporary(
    modal: Any,
    order: Mapping[str, Any],
    image: Any,
    until: contextlib.ExitStack,
    break_off: Callable[[Any], None],
) -> tuple[Any, Any]:
    """Give an app that is there for as long as this process, and its function.

    :param until: ends the app. :param break_off: ends it where it is still being built.
    """
    app, function = app_of(modal, order, image)
    built = threading.Event()

    def end_early() -> None:
        if not built.is_set():
            break_off(app)

    until.callback(end_early)
    until.enter_context(app.run())
    built.set()
    return app, chosen(function, order)


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
