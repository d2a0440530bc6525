"""One supervisor from beginning to end: its signals, its exit status, and nothing left behind.

Knows the supervisor and who starts runners for it; nothing of what is served.
"""

from __future__ import annotations

import signal
import sys

from pytest_remotegpu.errors import RemoteGpuError
from pytest_remotegpu.worker import start
from pytest_remotegpu.worker.supervisor import Supervisor

__all__ = ["serve"]


def serve(inward: int, outward: int, starter: start.Zygote | start.Spawning, scratch: str) -> int:
    """Serve one order on two descriptors, and leave nothing behind.

    :param starter: starts the runners. :param scratch: this process's folder, removed at the end.
    :return: the exit status.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervisor = Supervisor(inward, outward, starter, scratch)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        supervisor.serve()
    except RemoteGpuError as error:
        sys.stderr.write(f"pytest_remotegpu.worker: {error}\n")
        return 1
    finally:
        supervisor.close()
    return 0
