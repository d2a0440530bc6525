"""``python -m pytest_remotegpu.bench.fa2``: measure here, and write the document.

Knows the command line; the measuring is done next door.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pytest_remotegpu.bench.fa2 import asking, host
from pytest_remotegpu.bench.fa2.measuring import INTERRUPTED, USAGE, measure
from pytest_remotegpu.errors import UsageError

__all__ = ["main", "parser"]

NAME = "pytest_remotegpu.bench.fa2"


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    made = argparse.ArgumentParser(
        prog=f"python -m {NAME}",
        allow_abbrev=False,
        description="Time FlashAttention-2 beside other ways to compute the same attention.",
    )
    asking.add(made)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says.

    :return: 0 measured, 1 a comparison with float32 has failed, 2 for what can't be meant, 5 where
        nothing was measured that counts, 130 where it was interrupted.
    """
    options = parser().parse_args(arguments)
    try:
        return measure(asking.read(options), host.this())
    except UsageError as error:
        sys.stderr.write(f"{NAME}: {error}\n")
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    raise SystemExit(main())
