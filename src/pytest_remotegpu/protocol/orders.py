"""What goes out: the order, and the few small messages that may follow it.

The order's header is plain data for the supervisor; its payload is opened in the runner only.
This direction may carry pickles, because the far side runs the user's code anyhow. Knows nothing
of how an order travels, nor of what is in its payload.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Blob", "File", "Finish", "Message", "Order", "Run", "Stop", "Values"]


class File(msgspec.Struct, frozen=True, array_like=True):
    """One file of the source tree.

    :ivar path: posix, below the root, as ``plain.Text``.
    :ivar digest: names its content.
    :ivar size: bytes.
    :ivar link: the target of a symbolic link, as ``plain.Text``.
    """

    path: bytes
    digest: str
    size: int
    mode: int
    link: bytes | None = None


class Run(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """Run the tests from place ``first`` up to, not including, ``last``.

    :ivar failures: stop after so many further failures; 0 for no limit.
    """

    first: int
    last: int
    failures: int = 0


class Order(msgspec.Struct, frozen=True, array_like=True, tag="order"):
    """All that one worker has to do.

    :ivar worker: the worker's id, which stands in each frame that comes back.
    :ivar nonce: this attempt's mark, likewise.
    :ivar gpus: how many GPUs the tests see.
    :ivar cwd: the working directory, absolute, or relative to the tree's root where a tree is sent.
    :ivar root: the project's root on the sending side.
    :ivar tree: the files to lay out; ``None`` to work in ``root`` itself.
    :ivar variables: environment variables to set.
    :ivar environ: the whole environment to use instead of the worker's own; ``None`` to keep that.
    :ivar options: plain data for the runner.
    :ivar max_artifact: bytes that the artifacts of one test may take.
    :ivar total: how many tests the payload holds.
    :ivar payload: a cloudpickle of what only the runner may open.
    :ivar run: the first stretch.
    """

    worker: str
    nonce: str
    gpus: int
    cwd: str
    root: str
    tree: list[File] | None
    variables: dict[str, str]
    environ: dict[str, str] | None
    options: dict[str, Any]
    max_artifact: int
    total: int
    payload: bytes
    run: Run


class Finish(msgspec.Struct, frozen=True, array_like=True, tag="finish"):
    """No further stretch: end the session there in good order."""


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """End now: tear down within ``grace`` seconds, then be ended."""

    grace: float


class Values(msgspec.Struct, frozen=True, array_like=True, tag="values"):
    """The answer to ``Wants``: a cloudpickle for the runner."""

    payload: bytes


class Blob(msgspec.Struct, frozen=True, array_like=True, tag="blob"):
    """A piece of the content of ``digest``; ``last`` ends it."""

    digest: str
    data: bytes
    last: bool = True


Message = Order | Run | Finish | Stop | Values | Blob
