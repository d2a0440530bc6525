"""Stop with a sentence unless this host has the CUDA cards that a GPU run needs.

A GPU run on a host without a card would skip every test and look green. Knows torch, and nothing of
the project.

Usage: python .ci/require_cuda.py COUNT
"""

import sys


def find_fault(count: int) -> str | None:
    """Return why *count* CUDA cards can't be used here, or None where they can."""
    try:
        import torch  # noqa: PLC0415 - torch missing is one of the answers
    except ImportError as error:
        return f"torch can't be imported ({error}); install the build for this host's driver"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no CUDA here; run this on a CUDA host"
    seen = torch.cuda.device_count()
    if seen < count:
        return f"this run needs {count} CUDA cards, torch sees {seen}"
    return None


if __name__ == "__main__":
    sys.exit(find_fault(int(sys.argv[1])))
