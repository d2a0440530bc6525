"""Which containers are up at Modal now, and what that means for an app: in use, or paid for.

Runs in a process with the SDK, whose own command lists containers: the SDK has no call for that.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from typing import Any, Final

__all__ = ["Containers", "of", "read"]

PATIENCE: Final = 8.0
"""Seconds that the list may take."""
COMMAND: Final = ("-P", "-m", "modal", "container", "list", "--json")


class Containers:
    """The containers of the user's environment; they are asked for at once, and waited for late."""

    def __init__(self) -> None:
        self._found: Counter[str] | None = None
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        try:
            done = subprocess.run(
                [sys.executable, *COMMAND],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired):
            return
        if not done.returncode:
            self._found = read(done.stdout)

    def up(self, app: str) -> int | None:
        """Say how many an app has, be they started yet or not; ``None`` where that is not known.

        :param app: its id.
        """
        self._thread.join(PATIENCE)
        return None if self._found is None else self._found[app]


def read(text: str) -> Counter[str] | None:
    """Count the containers of each app in what the command prints; ``None`` for anything else.

    >>> read('[{"container_id": "ta-1", "app_id": "ap-1", "app_name": "rgpu-1"}]')
    Counter({'ap-1': 1})
    """
    try:
        return Counter(str(each["app_id"]) for each in json.loads(text))
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


def of(number: int | None, *, deployed: bool) -> dict[str, Any]:
    """Say what is known of the use of an app that has so many containers.

    :param number: ``None`` where that is not known. :param deployed: whether it outlasts sessions.
    :return: the fields of a :class:`Running` for that.
    """
    if number is None:
        text = "whether a container is up, and paid for, is not known"
        return {"busy": True, "paid": None, "use": text}
    if number:
        text = f"{number} container{'s are' if number != 1 else ' is'} up, at work or kept warm"
        return {"busy": True, "paid": True, "use": f"{text}: paid for"}
    rest = "it is kept for the next run" if deployed else "it ends by itself once its session has"
    return {"busy": False, "paid": False, "use": f"no container is up: nothing is paid for, {rest}"}
