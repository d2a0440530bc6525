"""Begin a runner anew, under the interpreter options of the user's session.

What Python reads from its own command line can't be changed later, and a zygote has none of it.
Knows descriptors and bytes; what those say, it does not know.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from pytest_remotegpu.worker.process import DUMP, nameless_file

__all__ = ["become", "missing", "recall"]

READ_AT_START: Final = frozenset(
    f"PYTHON{name}"
    for name in (
        "ASYNCIODEBUG", "DEVMODE", "DONTWRITEBYTECODE", "FAULTHANDLER", "HASHSEED",
        "INTMAXSTRDIGITS", "IOENCODING", "MALLOC", "NOUSERSITE", "OPTIMIZE", "SAFEPATH",
        "TRACEMALLOC", "UTF8", "WARNDEFAULTENCODING", "WARNINGS",
    )
)  # fmt: skip
"""Variables that are of no use to a test's process once it runs."""


def missing(variables: Mapping[str, str]) -> dict[str, str]:
    """Pick the variables that Python would have read when it started, and has not."""
    return {
        name: value
        for name, value in variables.items()
        if name in READ_AT_START and os.environ.get(name) != value
    }


def become(
    options: Sequence[str], variables: Mapping[str, str], said: bytes, descriptors: Sequence[int]
) -> NoReturn:
    """Put a runner under these options in the place of this process.

    :param variables: of the environment, besides those of this process. :param said: what has come
        over the channel. :param descriptors: the channel, the file for stacks, and others that are
        to stay open.
    :raises OSError: where that can't be done.
    """
    file = nameless_file("order")
    with os.fdopen(os.dup(file), "wb") as writer:
        writer.write(said)
    kept = [file, *descriptors]
    for fd in kept:
        os.set_inheritable(fd, True)
    signal.signal(DUMP, signal.SIG_IGN)  # until somebody answers it again
    os.chdir("/")  # the zygote's folder may be gone
    command = [sys.executable, *options, "-m", "pytest_remotegpu.worker.spawned", "--anew"]
    environ = {**os.environ, **variables}
    os.execve(sys.executable, [*command, *map(str, kept)], environ)  # noqa: S606 -- ourselves


def recall(words: Sequence[str]) -> tuple[bytes, list[int]]:
    """Take up in the new process what :func:`become` has left.

    :param words: the arguments after ``--anew``.
    :return: what had come, and the descriptors.
    """
    kept, *descriptors = map(int, words)
    for fd in descriptors:
        os.set_inheritable(fd, False)
    with os.fdopen(kept, "rb") as file:
        file.seek(0)
        return file.read(), descriptors
