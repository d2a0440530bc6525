"""This host as a far side: worker processes of the same interpreter in the user's working tree.

Knows how they are started, and nothing of what is said to them.
"""

from __future__ import annotations

import re
from typing import Final

from pytest_remotegpu.backends.base import Backend, Channel, Environment, Site
from pytest_remotegpu.backends.stdio import StdioChannel
from pytest_remotegpu.errors import SpecError
from pytest_remotegpu.gpu import Shape

__all__ = ["LocalCpu", "make"]

PRETEND: Final = "PYTEST_REMOTEGPU_PRETEND_GPUS"
DEFAULT_GPUS: Final = 2
MOST_GPUS: Final = 1024


class LocalCpu:
    """``local:cpu``: the whole machinery on the CPU of this host, with pretend GPUs."""

    ships_tree = False
    one_host = True
    pretends = True
    prompt = True

    def __init__(self, count: int, python: str) -> None:
        self.name = "local:cpu"
        self.capacity = count
        self.where = f"this host's CPU, {count} pretend GPU{'s' if count != 1 else ''}"
        self._python = python

    def open(self, shape: Shape, environment: Environment) -> Channel:  # noqa: ARG002 -- all shapes are alike here
        """Start a worker on this host."""
        variables = {**environment.variables, PRETEND: str(self.capacity)}
        return StdioChannel([self._python, "-P", "-m", "pytest_remotegpu.worker"], variables)


def make(rest: str, site: Site) -> Backend:
    """Read ``cpu`` or ``cpu:N``, N from 1 to 1024.

    :raises SpecError: for anything else, and on Windows.
    """
    match = re.fullmatch(r"cpu(?::(\d{1,6}))?", rest)
    if match is None:
        what = (
            f"--remote=local:{rest} is not understood"
            if rest
            else "--remote=local is not built yet"
        )
        raise SpecError(
            f"{what}; valid are local:cpu and local:cpu:N "
            f"(N pretend GPUs, {DEFAULT_GPUS} by default)"
        )
    count = int(match[1] or DEFAULT_GPUS)
    if not 1 <= count <= MOST_GPUS:
        raise SpecError(f"--remote=local:cpu:{count} pretends {count} GPUs; give 1 to {MOST_GPUS}")
    if site.platform == "win32":
        raise SpecError("--remote=local:cpu needs a POSIX system; on Windows run pytest inside WSL")
    return LocalCpu(count, site.python or site.executable)
