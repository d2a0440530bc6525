"""What of ours at Modal nobody uses any more, and how it is taken away.

Runs in a process with the SDK. Ours is an app with our tag and the beginning of our names, and the
queue and the dict that are named after one; whatever is in doubt stays.
"""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from pytest_remotegpu.backends.modal.container import WEEK, note_of
from pytest_remotegpu.backends.modal.deploying import CLAIMS, FUNCTION, PREFIX, QUEUE, TAG
from pytest_remotegpu.errors import FarSideError

__all__ = ["WEEKS", "id_of", "left_over", "ours", "stop", "take_away"]

WEEKS: Final = 4
"""Weeks without any use after which something is left over; the service knows no longer past."""
AT_ONCE: Final = 8
"""Apps that are asked about side by side."""
NAME: Final = re.compile(rf"({re.escape(PREFIX)}[0-9a-f]{{12}}(?:-[a-z0-9-]+?)?)({QUEUE}|{CLAIMS})")
"""The name of an app's queue or dict."""
COUNTS: Final = (
    "input_success_count",
    "input_failure_count",
    "input_timeout_count",
    "input_running_at_end_count",
    "container_started_count",
    "container_creating_at_end_count",
)
"""Of what the service counts of a function, that which is use."""


def ours(modal: Any) -> Iterator[Any]:
    """Give our apps that are not stopped, in the user's environment."""
    for app in modal.Environment.from_context().apps.list():
        if (app.name or app.description or "").startswith(PREFIX) and TAG in app.get_tags():
            yield app


def id_of(app: Any) -> str:
    """Give what an app is called; several of sessions that take theirs along share a description.

    The service gives a name to deployed ones only.
    """
    return str(app.name or app.app_id)


def stop(app: Any) -> None:
    """End an app with all its containers.

    :raises FarSideError: where the service refuses.
    """
    if hasattr(app, "stop"):
        app.stop()
        return
    # an older SDK ends by name only, and a session's own app has none; its command takes the id
    command = [sys.executable, "-P", "-m", "modal", "app", "stop", "--yes", app.app_id]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise FarSideError(" ".join((done.stderr or done.stdout).split()))


def left_over(modal: Any) -> list[dict[str, Any]]:
    """Say what nobody has used for weeks: apps, and queues and dicts without an app."""
    apps = [app for app in ours(modal) if app.name]  # others end with their sessions
    with ThreadPoolExecutor(AT_ONCE) as threads:
        lines = threads.map(lambda app: _about(modal, app), apps)
        found = [{"id": a.name, "about": line} for a, line in zip(apps, lines, strict=True) if line]
    return [*found, *_strays(modal)]


def take_away(modal: Any, name: str) -> None:
    """Take one of those away.

    :raises FarSideError: where it is none of them, or none any more.
    """
    for app in ours(modal):
        if app.name == name and _about(modal, app):
            stop(app)
            for manager, end in _managers(modal):
                manager.delete(f"{name}{end}", allow_missing=True)
            return
    if any(each["id"] == name for each in _strays(modal)):
        for manager, end in _managers(modal):
            if name.endswith(end):
                manager.delete(name, allow_missing=True)
        return
    raise FarSideError(f"{name!r} is not left over: it is gone, or somebody has used it")


def _managers(modal: Any) -> tuple[tuple[Any, str], ...]:
    return (modal.Queue.objects, QUEUE), (modal.Dict.objects, CLAIMS)


def _day(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).date().isoformat()


# ---------------------------------------------------------------- apps


def _about(modal: Any, app: Any) -> str:
    """Describe an app that is left over; empty where it is not, or that can't be told."""
    told = app.info(refresh=True).lifecycle
    deployed = (told.deployed_at or told.created_at).timestamp()
    if _recent(deployed) or _noted(modal, app.name) or _counted(modal, app.name):
        return ""
    return f"app deployed on {_day(deployed)} and not used for {WEEKS} weeks, with queue and dict"


def _recent(when: float) -> bool:
    return time.time() - when < WEEKS * WEEK


def _noted(modal: Any, app: str) -> bool:
    """Say whether containers have noted that an app was used, in this week or those before.

    The service forgets a note that nobody has read or renewed for a week.
    """
    notes = modal.Dict.from_name(f"{app}{CLAIMS}")
    now = time.time()
    try:
        return any(notes.contains(note_of(now - week * WEEK)) for week in range(-1, WEEKS + 1))
    except modal.exception.NotFoundError:
        return False


def _counted(modal: Any, app: str) -> bool:
    """Say whether the service has counted any use of an app, whatever the options of the run.

    Where it does not tell, it may have been used.
    """
    now = dt.datetime.now(dt.UTC)
    try:
        function = modal.Function.from_name(app, FUNCTION)
        function.hydrate()
        for week in range(WEEKS):
            until = now - dt.timedelta(weeks=week)
            since = until - dt.timedelta(weeks=1)
            found = function.stats(since=since, until=until, all_variants=True)
            if any(getattr(found, name) for name in COUNTS):
                return True
    except modal.exception.NotFoundError:  # it has no such function: nothing can be called
        return False
    except modal.exception.Error:
        return True
    return False


# ---------------------------------------------------------------- queues and dicts


def _strays(modal: Any) -> Iterator[dict[str, Any]]:
    """Give queues and dicts whose app is gone: it was stopped, or went with its session."""
    listed = modal.Environment.from_context().apps.list()
    living = {name for app in listed for name in (app.name, app.description) if name}
    for manager, end in _managers(modal):
        for thing in manager.list():
            match = NAME.fullmatch(thing.name or "")
            if match is None or match[2] != end or match[1] in living:
                continue
            made = thing.info().created_at.timestamp()
            if not _recent(made) and not _noted(modal, match[1]):
                what = f"{'queue' if end == QUEUE else 'dict'} of {_day(made)}"
                yield {"id": thing.name, "about": f"{what}, whose app is gone"}
