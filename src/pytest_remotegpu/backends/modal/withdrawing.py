"""Calls that are withdrawn before a container has begun them, also where none can be cancelled.

Who first puts an entry under a call's name into the app's dict has that call: a container, which
then begins it, or the user's side, after which nobody does. Runs on both sides.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

__all__ = ["WITHDRAWN", "is_withdrawn", "leave", "withdraw"]

WITHDRAWN: Final = "withdrawn"
"""What stands there in place of a container's name, none of which is like it."""


def withdraw(claims: Any, nonce: str) -> bool:
    """Have no container begin a call; say whether none has, nor will.

    :param claims: the app's dict. :param nonce: names the call.
    """
    with contextlib.suppress(Exception):  # then a container asks for messages, and finds none
        return bool(claims.put(nonce, WITHDRAWN, skip_if_exists=True))
    return False


def is_withdrawn(claims: Any, nonce: str) -> bool:
    """Say, in a container that could not claim a call, whether the user's side has it back."""
    return bool(claims.get(nonce) == WITHDRAWN)


def leave() -> None:
    """End this container after its call, instead of once it has had no work for a while.

    Where that can't be had, it ends like any other.
    """
    with contextlib.suppress(Exception):
        from modal import experimental  # noqa: PLC0415 -- only a container has need of it

        experimental.stop_fetching_inputs()
