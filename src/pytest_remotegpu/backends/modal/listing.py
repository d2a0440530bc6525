"""What of ours is deployed at Modal, and how it is ended; other apps are never touched.

The SDK runs in a process of its own: this module is that process's program as well.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.backends.base import Running, Site
from pytest_remotegpu.backends.modal.deploying import FUNCTION, PREFIX, TAG
from pytest_remotegpu.errors import FarSideError

__all__ = ["Apps", "make"]

PATIENCE: Final = 15.0
"""Seconds that the service has for one answer."""


class Apps:
    """The apps that this package has deployed in the user's environment at Modal."""

    def list(self) -> list[Running]:
        """Give those that are not stopped."""
        return [Running(**each) for each in _asked("list")]

    def stop(self, id: str) -> None:
        """End an app and all its containers; the next session deploys it anew."""
        _asked("stop", id)

    def logs(self, id: str) -> Iterator[str]:
        """Yield the newest lines of an app's log."""
        yield from _asked("logs", id)


def make(site: Site) -> Apps | None:  # noqa: ARG001 -- the signature of all that list
    """Make what lists, where the SDK is installed and there may be a token."""
    try:
        importlib.metadata.version("modal")
    except importlib.metadata.PackageNotFoundError:
        return None
    profile = Path(os.environ.get("MODAL_CONFIG_PATH") or "~/.modal.toml").expanduser()
    return Apps() if os.environ.get("MODAL_TOKEN_ID") or profile.is_file() else None


def _asked(*words: str) -> Any:
    command = [sys.executable, "-P", "-m", "pytest_remotegpu.backends.modal.listing", *words]
    try:
        done = subprocess.run(
            command,
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


def _ours(modal: Any) -> Iterator[Any]:
    for app in modal.Environment.from_context().apps.list():
        if (app.name or "").startswith(PREFIX) and TAG in app.get_tags():
            yield app


def _described(modal: Any, app: Any) -> dict[str, Any]:
    """Say what there is of an app.

    It is always taken to be in use: the service counts containers by the options of a run, which
    are not known here, and the others who share the workspace may use it.
    """
    try:
        stats = modal.Function.from_name(app.name, FUNCTION).get_current_stats()
    except modal.exception.Error as error:
        about = f"deployed, {type(error).__name__}: {error}"
    else:
        about = f"deployed, {stats.num_total_runners} containers without options of a run"
    return {"id": app.name, "about": about, "busy": True}


def _done(modal: Any, word: str, name: str) -> Any:
    apps = list(_ours(modal))
    if word == "list":
        return [_described(modal, app) for app in apps]
    found = [app for app in apps if app.name == name]
    if not found:
        raise FarSideError(f"no app of pytest-remotegpu is called {name!r}")
    if word == "logs":
        return [line for entry in found[0].logs.tail(200) for line in entry.message.splitlines()]
    if hasattr(found[0], "stop"):
        found[0].stop()
    else:
        from modal.experimental import stop_app  # noqa: PLC0415 -- only the older SDK needs it

        stop_app(name)
    return None


def _main(words: list[str]) -> None:
    from pytest_remotegpu.backends.modal import sdk  # noqa: PLC0415 -- only this process needs it

    try:
        modal = sdk.load()
        sdk.harden()
        answer = {"answer": _done(modal, words[0], "".join(words[1:]))}
    except Exception as error:  # noqa: BLE001 -- the border: it is told on the other side
        answer = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    _main(sys.argv[1:])
