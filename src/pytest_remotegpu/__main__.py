"""``python -m pytest_remotegpu``: the command ``remotegpu``, of this very interpreter."""

from __future__ import annotations

import sys

from pytest_remotegpu.cli import main

if __name__ == "__main__":
    sys.exit(main())
