"""``python -m pytest_remotegpu.worker``: be a worker on stdin and stdout.

Only a way in: what a worker does, it does not know.
"""

from __future__ import annotations

import sys

from pytest_remotegpu.worker.supervisor import main

if __name__ == "__main__":
    sys.exit(main())
