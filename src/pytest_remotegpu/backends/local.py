"""This host as a far side: worker processes of the same interpreter in the user's working tree.

Knows how they are started, and nothing of what is said to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pytest_remotegpu.backends import warm
from pytest_remotegpu.backends.base import Backend, Channel, Environment, Site
from pytest_remotegpu.backends.stdio import StdioChannel
from pytest_remotegpu.errors import FarSideError, SpecError
from pytest_remotegpu.gpu import Shape

__all__ = ["Local", "LocalCpu", "make"]

PRETEND: Final = "PYTEST_REMOTEGPU_PRETEND_GPUS"
DEFAULT_GPUS: Final = 2
MOST_GPUS: Final = 1024
PRELOAD: Final = ("torch", "numpy")
"""What the warm process imports ahead, where it is installed."""


class Local:
    """``local``: the CUDA cards of this host, each leased for as long as a test uses it.

    :param site: the session.
    """

    name = "local"
    ships_tree = False
    one_host = True
    pretends = False
    prompt = True
    capacity: int | None = None
    where = "this host's GPUs"

    def __init__(self, site: Site) -> None:
        self._site = site
        self._python = site.python or site.executable

    def open(self, shape: Shape, environment: Environment) -> Channel:
        """Start a worker on this host: by the warm agent, where one may be used."""
        variables = {**environment.variables, **self._variables(), **dict(shape.env)}
        if self._site.fresh or self._site.platform != "linux":
            return self._private(variables)
        try:
            return warm.open_worker(
                self._python,
                variables,
                root=self._site.root,
                preload=(*PRELOAD, *self._site.preload),
                idle=self._site.idle,
                about=f"{shape}, {self._site.root}",
            )
        except FarSideError as error:
            channel = self._private(variables)
            channel.note = f"no warm process was used: {error}"
            return channel

    def _variables(self) -> Mapping[str, str]:
        return {}

    def _private(self, variables: Mapping[str, str]) -> StdioChannel:
        return StdioChannel([self._python, "-P", "-m", "pytest_remotegpu.worker"], variables)


class LocalCpu(Local):
    """``local:cpu``: the whole machinery on the CPU of this host, with pretend GPUs.

    :param count: how many.
    """

    name = "local:cpu"
    pretends = True

    def __init__(self, count: int, site: Site) -> None:
        super().__init__(site)
        self.capacity = count
        self.where = f"this host's CPU, {count} pretend GPU{'s' if count != 1 else ''}"

    def _variables(self) -> Mapping[str, str]:
        return {PRETEND: str(self.capacity)}


def make(rest: str, site: Site) -> Backend:
    """Read nothing, ``cpu`` or ``cpu:N``, N from 1 to 1024.

    :raises SpecError: for anything else, and on systems without workers.
    """
    match = re.fullmatch(r"(?:cpu(?::([0-9]{1,6}))?)?", rest)
    if match is None:
        raise SpecError(
            f"--remote=local:{rest} is not understood; valid are local (this host's CUDA cards), "
            f"local:cpu and local:cpu:N (N pretend GPUs, {DEFAULT_GPUS} by default)"
        )
    count = int(match[1] or DEFAULT_GPUS)
    if not 1 <= count <= MOST_GPUS:
        raise SpecError(f"--remote=local:cpu:{count} pretends {count} GPUs; give 1 to {MOST_GPUS}")
    name = f"--remote=local{':' if rest else ''}{rest}"
    if site.platform == "win32":
        raise SpecError(f"{name} needs a POSIX system; on Windows run pytest inside WSL")
    if not rest and site.platform != "linux":
        raise SpecError(f"{name} needs Linux, where CUDA is; local:cpu runs without a card")
    return LocalCpu(count, site) if rest else Local(site)
