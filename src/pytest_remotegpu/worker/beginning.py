"""How a process that serves an order begins: it hears the order, and becomes what that asks for.

A runner, or the launcher of several; what either does, it does not know.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
from collections.abc import Sequence
from typing import NoReturn

from pytest_remotegpu.protocol import orders
from pytest_remotegpu.worker import interpreter, runner
from pytest_remotegpu.worker.emit import Emitter
from pytest_remotegpu.worker.inbox import Inbox
from pytest_remotegpu.worker.process import DUMP
from pytest_remotegpu.worker.ranks import launcher

__all__ = ["main"]


def main(fd: int, stacks: int, locks: Sequence[int] = (), said: bytes = b"") -> NoReturn:
    """Serve one order that comes over the socket ``fd``, then end the process.

    :param stacks: a file for every thread's stack, whenever the supervisor asks for them.
    :param locks: descriptors to hold. :param said: what had come before this process began anew,
        with the order's interpreter options.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # its parents leave it alone
    faulthandler.register(DUMP, file=stacks, all_threads=True)
    channel = socket.socket(fileno=fd)
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
    emitter, inbox = Emitter(channel), Inbox(channel, said)
    order = inbox.wait()
    if not isinstance(order, orders.Order):
        os._exit(0)
    variables = interpreter.missing(order.variables)
    if (order.options.python or variables) and not said:
        heard = bytes(inbox.said or b"")
        interpreter.become(order.options.python, variables, heard, [fd, stacks, *locks])
    inbox.said = None
    if order.launch is not None:
        launcher.launch(order, emitter, inbox, channel, stacks)
    runner.serve(order, emitter, inbox)
