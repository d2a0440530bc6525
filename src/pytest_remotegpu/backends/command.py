"""Any command whose stdin and stdout are the channel, and ``ssh`` as the best known of them.

Knows command lines only; what a worker is asked, and answers, passes through unseen.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from pytest_remotegpu.backends.base import Backend, Channel, Environment, Site
from pytest_remotegpu.backends.stdio import StdioChannel
from pytest_remotegpu.errors import SpecError
from pytest_remotegpu.gpu import Shape

__all__ = ["Command", "make", "make_ssh"]

WORKER: Final = ("-m", "pytest_remotegpu.worker")
DEFAULT_PYTHON: Final = "python3"


class Command:
    """Runs a worker behind a command; the project's files travel over the channel.

    :param name: as it stands in ``--remote=``.
    :param command: the whole command line.
    """

    ships_tree = True
    capacity = None
    one_host = True
    pretends = False
    prompt = True

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.where = name
        self.command = command

    def open(self, shape: Shape, environment: Environment) -> Channel:  # noqa: ARG002 -- the host says what it has
        """Start the command; its environment is this session's."""
        return StdioChannel(self.command, environment.variables or None)


def make(rest: str, site: Site) -> Backend:
    """Read a command line, to which ``PYTHON -m pytest_remotegpu.worker`` is appended.

    :raises SpecError: for one that is empty or not well quoted.
    """
    try:
        prefix = shlex.split(rest)
    except ValueError as error:
        raise SpecError(f"--remote=command:{rest} is not well quoted: {error}") from None
    if not prefix:
        raise SpecError(
            "--remote=command: names no command; it reads command:PREFIX, to which "
            "'PYTHON -m pytest_remotegpu.worker' is appended"
        )
    return Command(f"command:{rest}", [*prefix, site.python or DEFAULT_PYTHON, *WORKER])


def make_ssh(rest: str, site: Site) -> Backend:
    """Read a host as ``ssh`` does: ``HOST``, ``USER@HOST`` or an alias of ``~/.ssh/config``.

    :raises SpecError: for one that is empty, holds blanks or would be taken for an option.
    """
    if not re.fullmatch(r"[^\s\-][^\s]*", rest):
        raise SpecError(f"--remote=ssh:{rest} names no host; it reads ssh:HOST or ssh:USER@HOST")
    far = " ".join(shlex.quote(word) for word in (site.python or DEFAULT_PYTHON, *WORKER))
    options = [
        "-T",
        "-o",
        "BatchMode=yes",
        "-o",
        "ConnectTimeout=15",
        "-o",
        "ServerAliveInterval=15",
    ]
    return Command(f"ssh:{rest}", ["ssh", *options, "--", rest, far])
