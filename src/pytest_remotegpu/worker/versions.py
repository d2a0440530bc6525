"""Which torch, CUDA and driver a host has, found without importing any of them.

Reads the metadata of packages, and asks NVIDIA's library; knows nothing of tests.
"""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import Final

from pytest_remotegpu import cards

__all__ = ["found"]

PACKAGES: Final = ("torch", "triton", "flash-attn", "jax")
"""Those whose version explains a failure most often."""
CUDA: Final = re.compile(r"^cuda\s*(?::[^=]+)?=\s*['\"]([\d.]+)['\"]", re.MULTILINE)
MOST: Final = 2**14
"""Bytes of a file that are looked at."""


def found() -> dict[str, str]:
    """Give names and versions; what is not there is left out."""
    there = {}
    for name in PACKAGES:
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        there[name] = distribution.version
        if name == "torch":
            there["CUDA"] = _cuda_of(distribution)
    there["driver"] = cards.driver()
    return {name: text for name, text in there.items() if text}


def _cuda_of(torch: importlib.metadata.Distribution) -> str:
    """Give the version of CUDA that a build of torch is for; nothing where it is for none."""
    try:
        with Path(str(torch.locate_file("torch/version.py"))).open(encoding="utf-8") as file:
            match = CUDA.search(file.read(MOST))
    except (OSError, UnicodeDecodeError):
        return ""
    return match[1] if match else ""
