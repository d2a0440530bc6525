"""Which torch, CUDA and driver a host has, found without importing any of them.

Reads the metadata of packages, and asks NVIDIA's library; knows nothing of tests.
"""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import Final

from pytest_remotegpu import cards

__all__ = ["found", "packages"]

PACKAGES: Final = ("torch", "triton", "flash-attn", "jax")
"""Those whose version explains a failure most often."""
CUDA: Final = re.compile(r"^cuda\s*(?::[^=]+)?=\s*['\"]([\d.]+)['\"]", re.MULTILINE)
ABI: Final = re.compile(r"-D_GLIBCXX_USE_CXX11_ABI=([01])")
CMAKE: Final = "torch/share/cmake/Torch/TorchConfig.cmake"
MOST: Final = 2**14
"""Bytes of a file that are looked at."""


def found() -> dict[str, str]:
    """Give names and versions; what is not there is left out."""
    there = packages() | {"driver": cards.driver()}
    return {name: text for name, text in there.items() if text}


def packages() -> dict[str, str]:
    """Give what the metadata of installed packages say, without asking NVIDIA's library."""
    there = {}
    for name in PACKAGES:
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        there[name] = distribution.version
        if name == "torch":
            there["CUDA"] = _found_in(distribution, "torch/version.py", CUDA)
            there["cxx11abi"] = _abi_of(distribution)
    return there


def _abi_of(torch: importlib.metadata.Distribution) -> str:
    """Say whether torch has the C++11 ABI, in the words of flash-attn's wheels.

    Builds that say nothing of it leave it to the compiler, which has it.
    """
    if not _found_in(torch, CMAKE, re.compile(r"(TORCH_CXX_FLAGS|TORCH_LIBRARIES)")):
        return ""
    return "FALSE" if _found_in(torch, CMAKE, ABI) == "0" else "TRUE"


def _found_in(torch: importlib.metadata.Distribution, name: str, what: re.Pattern[str]) -> str:
    """Give what a file of torch says; nothing where it is not there, or says nothing of that."""
    try:
        with Path(str(torch.locate_file(name))).open(encoding="utf-8") as file:
            match = what.search(file.read(MOST))
    except (OSError, UnicodeDecodeError):
        return ""
    return match[1] if match else ""
