"""What of ours is at Modal, and how it is ended or taken away; what is not ours is never touched.

The SDK runs in a process of its own: this module is that process's program as well.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.backends.base import Running, Site
from pytest_remotegpu.backends.modal.deploying import FUNCTION, RUN
from pytest_remotegpu.errors import FarSideError, RemoteGpuError

__all__ = ["Apps", "make"]

PATIENCE: Final = 15.0
"""Seconds that the service has for one answer."""
VENDOR: Final = ("app logs --follow", "container list --app-id", "app stop")
"""Commands of Modal's own, without the id of an app."""
NEWEST: Final = 200
"""Entries of a log that are shown of what was there before."""


class Apps:
    """The apps that this package has deployed in the user's environment at Modal."""

    def __init__(self) -> None:
        self._running: list[Running] | None = None

    def list(self) -> list[Running]:
        """Give those that are not stopped."""
        found, self._running = self._running, None
        return [Running(**each) for each in _asked("list")] if found is None else found

    def orphans(self) -> Sequence[Running]:
        """Give apps that nobody has used for weeks, and queues and dicts that have lost theirs."""
        answer = _asked("all")  # the list is wanted as well, and the SDK takes a second to load
        self._running = [Running(**each) for each in answer["list"]]
        return [Running(**each) for each in answer["orphans"]]

    def collect(self, id: str) -> None:
        """Take one of those away, if it is one still: an app goes with its queue and dict."""
        _asked("collect", id)

    def stop(self, id: str) -> None:
        """End an app and all its containers; the next session deploys it anew."""
        _asked("stop", id)

    def logs(self, id: str) -> Iterator[str]:
        """Yield the newest lines of an app's log."""
        yield from _asked("logs", id)

    def follow(self, id: str) -> Iterator[str]:
        """Yield the newest lines of an app's log, and those that come, until the app ends."""
        process = subprocess.Popen(
            _command("follow", id),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        try:
            for text in process.stdout:
                said = json.loads(text)
                if "error" in said:
                    raise FarSideError(said["error"])
                if "line" not in said:
                    return
                yield said["line"]
            raise FarSideError(f"what listens to Modal has ended, exit status {process.wait()}")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def make(site: Site) -> Apps | None:  # noqa: ARG001 -- the signature of all that list
    """Make what lists, where the SDK is installed and there may be a token."""
    try:
        importlib.metadata.version("modal")
    except importlib.metadata.PackageNotFoundError:
        return None
    profile = Path(os.environ.get("MODAL_CONFIG_PATH") or "~/.modal.toml").expanduser()
    signed = any(os.environ.get(name) for name in ("MODAL_TOKEN_ID", "MODAL_OAUTH_REFRESH_TOKEN"))
    return Apps() if signed or profile.is_file() else None


def _command(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "pytest_remotegpu.backends.modal.listing", *words]


def _asked(*words: str) -> Any:
    try:
        done = subprocess.run(
            _command(*words),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise FarSideError(f"Modal does not answer within {PATIENCE:g} s") from None
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise FarSideError(last) from None
    if "error" in answer:
        raise FarSideError(answer["error"])
    return answer["answer"]


# ---------------------------------------------------------------- in the process with the SDK


def _described(modal: Any, app: Any, containers: Any) -> dict[str, Any]:
    """Say what there is of an app.

    One with containers is taken to be in use: the service counts calls with a delay, and what is
    warm is so for all who share the workspace.
    """
    from pytest_remotegpu.backends.modal import standing, sweeping  # noqa: PLC0415 -- only this process needs them

    run = str(app.get_tags().get(RUN, ""))
    what = _counted(modal, app.name) if app.name else _own(app)
    about = ", ".join(filter(None, (what, run and f"run {run}", app.get_dashboard_url())))
    return {
        "id": sweeping.id_of(app),
        "about": about,
        "run": run,
        "commands": [f"modal {words} {app.app_id}" for words in VENDOR],
        **standing.of(containers.up(app.app_id), deployed=bool(app.name)),
    }


def _own(app: Any) -> str:
    """Say what an app is that has no name."""
    state = str(getattr(app.info(refresh=True).lifecycle.state, "value", ""))
    return "a deployment that is not complete" if state == "initializing" else "a session's own"


def _counted(modal: Any, name: str) -> str:
    """Say what the service has counted in a day, whatever the options of the runs."""
    until = dt.datetime.now(dt.UTC)
    try:
        function = modal.Function.from_name(name, FUNCTION)
        function.hydrate()
        found = function.stats(since=until - dt.timedelta(days=1), until=until, all_variants=True)
    except modal.exception.Error as error:
        return f"deployed, {type(error).__name__}: {error}"
    wrong = found.input_failure_count + found.input_timeout_count
    over = found.input_success_count + wrong
    return (
        f"deployed, {found.input_running_at_end_count} calls under way, {over} ended within a day "
        f"({wrong} failed), {found.container_started_count} containers started"
    )


def _done(modal: Any, word: str, name: str) -> Any:
    from pytest_remotegpu.backends.modal import standing, sweeping  # noqa: PLC0415 -- only this process needs them

    if word == "collect":
        return sweeping.take_away(modal, name)
    apps = list(sweeping.ours(modal))
    if word in {"list", "all"}:
        containers = standing.Containers() if apps else None
        left = sweeping.left_over(modal) if word == "all" else []
        listed = [_described(modal, app, containers) for app in apps]
        return listed if word == "list" else {"list": listed, "orphans": left}
    found = [app for app in apps if sweeping.id_of(app) == name]
    if not found:
        raise FarSideError(f"no app of pytest-remotegpu is called {name!r}")
    if word == "logs":
        tail = found[0].logs.tail(NEWEST)
        return [line for entry in tail for line in entry.message.splitlines()]
    if word == "follow":
        _follow(found[0])
        return None
    sweeping.stop(found[0])
    return None


def _follow(app: Any) -> None:
    """Write the newest lines and those that come, until the app ends.

    The stream may begin with what was there before: that is told by time and text.
    """
    newest = list(app.logs.tail(NEWEST))
    seen = {(entry.timestamp, entry.message) for entry in newest}
    last = max((entry.timestamp for entry in newest), default=None)
    for entry in newest:
        _tell(entry)
    for entry in app.logs.stream():
        known = (entry.timestamp, entry.message) in seen
        if not known and (last is None or entry.timestamp >= last):
            _tell(entry)


def _tell(entry: Any) -> None:
    for line in entry.message.splitlines():
        sys.stdout.write(json.dumps({"line": line}) + "\n")
    sys.stdout.flush()


def _answer(words: list[str]) -> dict[str, Any]:
    from pytest_remotegpu.backends.modal import (  # noqa: PLC0415 -- only this process needs them
        sdk,
        signing,
        trouble,
    )

    try:
        modal = sdk.load()
        sdk.harden()
    except RemoteGpuError as error:
        return {"error": str(error)}
    except Exception as error:  # noqa: BLE001 -- the border: it reads a file of the user's
        return {"error": signing.unusable(error).text}
    found = signing.reach(modal) or signing.sign_in(modal)
    if found is not None:
        return {"error": found.text}
    try:
        return {"answer": _done(modal, words[0], "".join(words[1:]))}
    except RemoteGpuError as error:
        return {"error": str(error)}
    except Exception as error:  # noqa: BLE001 -- the border: it is told on the other side
        return {"error": trouble.of_error(modal, error, during="asking Modal").text}


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a log that is followed, in silence
    sys.stdout.write(json.dumps(_answer(sys.argv[1:])) + "\n")
