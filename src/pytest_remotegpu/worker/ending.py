"""The last words of a process that is about to end by ``os._exit``.

Knows what libraries register for the end of an interpreter; nothing of tests, nothing of the wire.
"""

from __future__ import annotations

import atexit
import weakref
from typing import Final

__all__ = ["run_exit_functions"]

NEEDLESS: Final = ("torch.library",)
"""Modules whose finalizers only take apart what goes with the process anyway."""


def run_exit_functions() -> None:
    """Run what was registered for the end of this interpreter.

    torch has more than a hundred finalizers, which take its operators apart one by one; that takes
    longer than many a test. They are left out.
    """
    # there is no public way to a finalizer that somebody else has made
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        alive = finalizer.peek()
        if alive is not None and getattr(alive[1], "__module__", "") in NEEDLESS:
            finalizer.atexit = False
    atexit._run_exitfuncs()  # noqa: SLF001 -- os._exit runs none of them, and nothing public does
