"""``python -m pytest_remotegpu.worker.spawned FD``: be a runner that was not forked.

Only a way in: what a runner does, it does not know.
"""

from __future__ import annotations

import sys

from pytest_remotegpu.worker import runner

if __name__ == "__main__":
    runner.main(int(sys.argv[1]))
