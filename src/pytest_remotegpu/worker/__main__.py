"""``python -m pytest_remotegpu.worker [--preload=MODULES]``: be a worker on stdin and stdout.

Starts the process that runners are forked from before it imports what itself needs: the two
take their time side by side. Knows nothing else.
"""

from __future__ import annotations

import os
import sys
import tempfile

from pytest_remotegpu.worker import process, start


def main() -> int:
    """Serve one order.

    :return: the exit status.
    """
    process.adopt_orphans()
    scratch = tempfile.mkdtemp(prefix=f"{process.PREFIX}{os.getpid()}-")
    inward, outward = process.take_over_streams()
    ahead = [word for word in sys.argv[1:] if word.startswith("--preload=")]
    starter = start.choose(scratch, *ahead, spawn="--spawn" in sys.argv[1:])
    from pytest_remotegpu.worker import serving  # noqa: PLC0415 -- after the start, see above

    return serving.serve(inward, outward, starter, scratch)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # nothing is left to be done, and the user's side waits for this end
