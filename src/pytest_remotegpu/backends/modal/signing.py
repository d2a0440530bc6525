"""Whether the service can be reached, and whether it takes this user's token.

Runs in processes of its own that have the SDK. Asks only what costs nothing; knows no session.
"""

from __future__ import annotations

import socket
import urllib.parse
from typing import Any, Final

from pytest_remotegpu.backends.modal import trouble
from pytest_remotegpu.backends.modal.trouble import Trouble

__all__ = ["REACH", "reach", "sign_in", "unusable"]

REACH: Final = 3.0
"""Seconds in which the service must be reachable; the SDK itself tries for a minute."""
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


def reach(modal: Any) -> Trouble | None:
    """Look whether the service is there at all, within seconds.

    :return: what is wrong, where it is not.
    """
    urls = str(modal.config.config.get("server_url")).split(",")
    last = ""
    for url in urls:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme == "unix":
            return None
        place = (parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443))
        try:
            socket.create_connection(place, REACH).close()
        except OSError as error:
            last = f"{parts.hostname}: {error}"
        else:
            return None
    what = f"Modal's service can't be reached within {REACH:g} s ({last})"
    return Trouble("infra", what, trouble.LOOK)


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
