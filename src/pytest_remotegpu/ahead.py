"""A worker asked for while this process still imports what it takes to speak to one.

Knows which far side can be asked without any cost, and that a warm process answers; must not import
what a session needs later, nor start, rent or wait for anything.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from pytest_remotegpu.backends import local
from pytest_remotegpu.backends.base import Site
from pytest_remotegpu.backends.warm import Begun
from pytest_remotegpu.config import Settings, split_spec
from pytest_remotegpu.errors import UsageError

__all__ = ["ask"]


def ask(settings: Settings, environ: Mapping[str, str], root: str) -> Begun | None:
    """Ask this user's warm process for a worker, if one is there and has what it takes ready.

    :param environ: the session's variables. :param root: the project's folder.
    :return: ``None`` where nothing was asked for; else it is to be closed, used or not.
    """
    try:
        name, rest = split_spec(settings.spec or "")
        if name != local.NAME:
            return None
        site = Site(
            settings.python,
            sys.executable,
            sys.platform,
            root=root,
            fresh=settings.fresh,
            idle=settings.idle,
            preload=settings.preload,
        )
        return local.make(rest, site).ask(environ)
    except UsageError:
        return None  # whoever makes the backend in earnest says so
