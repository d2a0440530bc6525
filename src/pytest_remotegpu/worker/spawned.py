"""``python -m pytest_remotegpu.worker.spawned SOCKET STACKS``: be a runner that was not forked.

With ``--anew`` and further descriptors, go on as one that has heard its order already. Only a way
in: what a runner does, it does not know.
"""

from __future__ import annotations

import sys

from pytest_remotegpu.worker import beginning, interpreter

if __name__ == "__main__":
    if sys.argv[1] == "--anew":
        said, (channel, stacks, *locks) = interpreter.recall(sys.argv[2:])
        beginning.main(channel, stacks, locks, said)
    beginning.main(int(sys.argv[1]), int(sys.argv[2]))
