"""``remotegpu doctor``: what is in the way of GPU tests here, each finding with its way out.

Each module looks at one kind of thing and imports as little as it can: whatever is broken must not
break the look at it. Must not know the command line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_remotegpu.doctor import framework, gpus, host, modal, software
from pytest_remotegpu.doctor.check import FAIL, OK, WARN, Check

__all__ = ["FAIL", "OK", "WARN", "Check", "examine"]


def examine(environ: Mapping[str, str]) -> Iterator[Check]:
    """Make every check of this host, one after the other.

    :param environ: the variables that a session would have.
    """
    yield from software.examine(environ)
    yield from gpus.examine(environ)
    yield from framework.examine(environ)
    yield from host.examine(environ)
    yield from modal.examine(environ)
