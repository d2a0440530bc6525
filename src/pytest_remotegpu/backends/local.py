"""This host as a far side: worker processes of the same interpreter in the user's working tree.

Knows how they are started, and nothing of what is said to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pytest_remotegpu.backends import warm
from pytest_remotegpu.backends.base import Channel, Environment, Site
from pytest_remotegpu.backends.stdio import StdioChannel
from pytest_remotegpu.errors import FarSideError, SpecError
from pytest_remotegpu.gpu import Shape

__all__ = ["NAME", "Local", "LocalCpu", "make"]

NAME: Final = "local"
"""What it is called in a specification."""
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
        self._begun = site.begun if isinstance(site.begun, warm.Begun) else None

    def open(self, shape: Shape, environment: Environment) -> Channel:
        """Start a worker on this host: by the warm agent, where one may be used."""
        variables = {**environment.variables, **self._variables(), **dict(shape.env)}
        if not self._uses_agent:
            return self._private(variables)
        try:
            return warm.open_worker(
                self._wish(variables), f"{shape}, {self._site.root}", self._begun
            )
        except FarSideError as error:
            channel = self._private(variables)
            channel.note = f"no warm process was used: {error}"
            return channel

    def ask(self, environ: Mapping[str, str]) -> warm.Begun | None:
        """Ask for a worker that may not be needed; no process is started that is not warm.

        :param environ: the session's variables.
        """
        if not self._uses_agent:
            return None
        return warm.begin(self._wish({**environ, **self._variables()}), self._site.root)

    def prepare(self) -> None:
        """Do nothing: what can be begun was begun before this was made."""

    def close(self) -> None:
        """Let go of a worker that was asked for ahead and that nobody needs."""
        if self._begun is not None:
            self._begun.close()

    @property
    def _uses_agent(self) -> bool:
        return not self._site.fresh and self._site.platform == "linux"

    def _wish(self, variables: Mapping[str, str]) -> warm.Wish:
        site = self._site
        return warm.Wish(
            self._python, dict(variables), site.root, (*PRELOAD, *site.preload), site.idle
        )

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


def make(rest: str, site: Site) -> Local:
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
