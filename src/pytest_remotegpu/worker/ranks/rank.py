"""One rank: a runner that is told each test by a launcher, and is known to the others by number.

Knows pytest and the runner; nothing of the processes beside it.
"""

from __future__ import annotations

import datetime as dt
import faulthandler
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.protocol.plain import to_text
from pytest_remotegpu.worker import runner
from pytest_remotegpu.worker.emit import Emitter
from pytest_remotegpu.worker.inbox import Inbox
from pytest_remotegpu.worker.process import DUMP
from pytest_remotegpu.worker.ranks import recorder
from pytest_remotegpu.worker.ranks.accounts import TEXT
from pytest_remotegpu.worker.ranks.variables import cleaned, meeting

__all__ = ["main", "order_for"]

THREADS = "OMP_NUM_THREADS"
DEFAULTS = ("default_pg_timeout", "default_pg_nccl_timeout")
"""What :mod:`torch.distributed` takes for a group's ``timeout`` where none is given."""


class RankInbox(Inbox):
    """What a launcher says; where the ranks meet goes into the environment."""

    def wait(self) -> Any:
        """Give the next message that is for the runner."""
        message = super().wait()
        while isinstance(message, orders.Meet):
            os.environ.update(meeting(message.port, store=message.store))
            message = super().wait()
        return message


def outlast_tests() -> None:
    """Have groups that tests make without a ``timeout`` give up no sooner than ``rank_group``.

    NCCL's would abort the process after 10 minutes, gloo's raise after 30, whatever the test's own
    limit is, which is watched from outside. Imports nothing.
    """
    groups: Any = sys.modules.get("torch.distributed.distributed_c10d")
    for name in DEFAULTS:
        if isinstance(getattr(groups, name, None), dt.timedelta):
            setattr(groups, name, orders.GROUPS_END)


def _has_group() -> bool:
    """Say whether torch has a default process group here; imports nothing."""
    distributed: Any = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


class Conduct:
    """The plugin that makes a runner one of several: it says more, and leaves no group behind.

    :param emitter: to the launcher. :param site: of the rank.
    """

    def __init__(self, emitter: Emitter, site: orders.Site) -> None:
        self._emitter = emitter
        self._site = site
        self._left = self._failed = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        """Let the launcher see what collectives this rank enters, where it has torch for them."""
        recorder.serve(str(Path(self._site.artifacts).parent), self._site.rank)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Begin with nothing known."""
        outlast_tests()  # each time: a test may be the first to import torch
        self._left = self._failed = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Any:
        """See whether the test itself makes a group, which then is its own."""
        before = _has_group()
        try:
            return (yield)
        finally:
            self._left = not before and _has_group()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the error as text."""
        self._failed = self._failed or report.failed
        longrepr: Any = report.longrepr
        if longrepr is None:
            return
        is_skip = report.skipped and isinstance(longrepr, tuple)
        reason = str(longrepr[-1]).removeprefix("Skipped: ") if is_skip else ""
        setattr(report, TEXT, reason if is_skip else report.longreprtext)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Destroy a group that the test has left; where one stays after a failure, end after it."""
        self._emitter.flush()  # the test has its result, whatever becomes of this
        if self._left and _has_group():
            try:
                sys.modules["torch.distributed"].destroy_process_group()
            except Exception as error:  # noqa: BLE001 -- a group of ranks that have failed may raise anything
                text = f"the process group that {nodeid} left can't be destroyed: {error}"
                self._emitter.put(events.Note(to_text(text)))
                self._emitter.spoilt = True
        if self._failed and _has_group():
            self._emitter.spoilt = True


def order_for(order: orders.Order, rank: int, variables: dict[str, str]) -> orders.Order:
    """Make of an order the one for a rank.

    :param variables: by which it knows itself and the others.
    """
    first = order.run.first
    shown = order.options.shown_worker
    options = msgspec.structs.replace(
        order.options, python=[], shown_worker=f"{shown}-rank{rank}" if shown else ""
    )
    return msgspec.structs.replace(
        order,
        worker=f"{order.worker}-rank{rank}",
        options=options,
        environ=None if order.environ is None else cleaned(order.environ),
        variables={**order.variables, **variables},
        site=msgspec.structs.replace(order.site, rank=rank),
        run=orders.Run(first, first),
    )


def main(fd: int, stacks: int) -> NoReturn:
    """Be a rank, as whose order has come over the socket ``fd``.

    :param stacks: a file for every thread's stack, whenever the launcher asks for them.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.register(DUMP, file=stacks, all_threads=True)
    channel = socket.socket(fileno=fd)
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
    inbox = RankInbox(channel)
    inbox.said = None
    order = inbox.wait()
    if not isinstance(order, orders.Order):
        os._exit(0)
    kept = cleaned(os.environ)
    os.environ.clear()
    os.environ.update(kept)
    emitter = Emitter(channel)
    runner.serve(_with_threads(order), emitter, inbox, [Conduct(emitter, order.site)])


def _with_threads(order: orders.Order) -> orders.Order:
    """Let ranks not get in each other's way: as torchrun does, unless somebody has said else."""
    environ = order.environ if order.environ is not None else dict(os.environ)
    world = order.launch.ranks if order.launch is not None else 1
    if world == 1 or THREADS in environ or THREADS in order.variables:
        return order
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
    return msgspec.structs.replace(order, variables={**order.variables, THREADS: "1"})
