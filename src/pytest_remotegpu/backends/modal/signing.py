"""Whether the service can be reached, and whether it takes this user's token.

Runs in processes of its own that have the SDK. Asks only what costs nothing; knows no session.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any, Final

from pytest_remotegpu.backends.modal import trouble
from pytest_remotegpu.backends.modal.trouble import Trouble

__all__ = ["REACH", "reach", "sign_in", "unusable"]

REACH: Final = 3.0
"""Seconds in which the service must be reachable, all in all; the SDK itself tries for a minute."""
VARIABLE: Final = "MODAL_SERVER_URL"
SCHEMES: Final = ("http", "https", "unix")
EXAMPLE: Final = "https://api.modal.com"
PROFILES: Final = (
    "mend the file that it names (~/.modal.toml, or MODAL_CONFIG_PATH); `modal profile activate "
    "NAME` or MODAL_PROFILE picks a profile, `modal token new` makes one"
)


def unusable(error: Exception) -> Trouble:
    """Say why the SDK could not be imported: it reads the user's file of profiles by that."""
    said = " ".join(str(error).split())
    if isinstance(error, ImportError):
        how = "python -m pip install --force-reinstall 'pytest-remotegpu[modal]'"
        return Trouble("usage", f"Modal's SDK can't be imported: {said}", how)
    return Trouble("usage", f"Modal's SDK does not start: {said}", PROFILES)


def reach(
    modal: Any, *, within: float = REACH, resolve: Callable[..., Any] = socket.getaddrinfo
) -> Trouble | None:
    """Look whether the service is there at all, within seconds for all that this takes.

    All its URLs are tried at once, and all addresses of each.

    :param within: the seconds. :param resolve: looks up a name, as :func:`socket.getaddrinfo` does.
    :return: what is wrong, where it is not.
    """
    deadline = time.monotonic() + within
    answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
    tries = []
    given = str(modal.config.config.get("server_url"))
    where = _origin(modal, given)
    for url in given.split(","):
        if (found := _read(url)) is None:
            what = f"{where or repr(given)} is no address of a service"
            return Trouble("usage", what, f"leave it out, or give one such as {EXAMPLE}")
        if found[0] == "unix":
            return None
        tries.append(_Try(*found[1:], deadline))
    for each in tries:
        _beside(each.run, resolve, answers)
    with contextlib.suppress(queue.Empty):
        for _ in tries:
            if answers.get(timeout=max(deadline - time.monotonic(), 0.0)):
                return None
    said = "; ".join(f"{each.host}: {each.state}" for each in tries)
    what = f"Modal's service can't be reached within {within:g} s ({said})"
    own = f"see whether {where} is meant; else " if where else ""
    return Trouble("infra", what, f"{own}{trouble.LOOK}")


def _read(url: str) -> tuple[str, str, int] | None:
    """Give scheme, host and port of a URL that the SDK can speak to; ``None`` where it is none."""
    try:
        parts = urllib.parse.urlsplit(url.strip())
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:  # a port that is no number, a bracket without its other one
        return None
    there = parts.path if parts.scheme == "unix" else parts.hostname
    return (parts.scheme, str(there), port) if there and parts.scheme in SCHEMES else None


def _origin(modal: Any, given: str) -> str:
    """Say where the user has given the service's address; empty where it is the SDK's own."""
    if VARIABLE in os.environ:
        return f"{VARIABLE}={given!r}"
    if given == getattr(modal.config, "DEFAULT_SERVER_URL", given):
        return ""
    path = getattr(modal.config, "user_config_path", "~/.modal.toml")
    return f"server_url = {given!r} in a profile of {path}"


class _Try:
    """Tries one URL. Nobody waits for its threads: to look up a name may take minutes.

    :ivar state: what it has come to.
    """

    def __init__(self, host: str, port: int, deadline: float) -> None:
        self.host, self._port, self._deadline = host, port, deadline
        self.state = "its name is still being looked up"

    def run(self, resolve: Callable[..., Any], answers: queue.SimpleQueue[bool]) -> None:
        """Say once whether it can be reached."""
        answers.put(self._reaches(resolve))

    def _reaches(self, resolve: Callable[..., Any]) -> bool:
        try:
            found = resolve(self.host, self._port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # the latter for what can be no name
            self.state = str(error)
            return False
        self.state = f"no answer from {', '.join(sorted({each[4][0] for each in found}))}"
        errors: queue.SimpleQueue[str] = queue.SimpleQueue()
        for family, kind, protocol, _name, address in found:
            _beside(self._connect, (family, kind, protocol), address, errors)
        for _ in found:
            said = errors.get()
            if not said:
                return True
            self.state = said
        return False

    def _connect(
        self, of: tuple[int, int, int], address: Any, errors: queue.SimpleQueue[str]
    ) -> None:
        try:
            with socket.socket(*of) as tried:
                tried.settimeout(max(self._deadline - time.monotonic(), 0.001))
                tried.connect(address)
        except OSError as error:
            errors.put(str(error) or type(error).__name__)
        else:
            errors.put("")


def _beside(work: Callable[..., None], *args: Any) -> None:
    threading.Thread(target=work, args=args, daemon=True).start()


def sign_in(modal: Any) -> Trouble | None:
    """Have the service look at the token.

    :return: what is wrong, where it does not take it.
    """
    during = "signing in"
    try:
        client = modal.Client.from_env()
    except modal.exception.InvalidError as error:  # of several profiles none is active, or so
        said = " ".join(str(error).split())
        return Trouble("usage", f"{during}: Modal's settings can't be meant: {said}", PROFILES)
    except Exception as error:  # noqa: BLE001 -- the border: whatever the SDK raises
        return trouble.of_error(modal, error, during=during)
    try:
        client.hello()
    except modal.exception.InvalidError as error:
        return trouble.old_client(str(error))
    except Exception as error:  # noqa: BLE001 -- the border: whatever the SDK raises
        return trouble.of_error(modal, error, during=during)
    return None
