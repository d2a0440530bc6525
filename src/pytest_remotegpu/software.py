"""What a far side is made of, as its hello says, in words; and how that differs from here.

What a far side says is text that nobody can trust. Imports none of what it names.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping
from typing import Final

__all__ = ["KNOWN", "differences", "heading", "in_words", "installed", "of_failure"]

KNOWN: Final = ("torch", "CUDA", "cxx11abi", "driver", "triton", "flash-attn", "jax")
"""In the order in which people want to know."""
HEADING: Final = ("torch", "CUDA", "driver")
"""What a session says of its far side before its first test from there."""
COMPARED: Final = ("torch", "triton", "flash-attn", "jax")
UNFIT: Final = re.compile(
    r"undefined symbol|symbol not found|cannot open shared object|GLIBCXX|DLL load failed"
    r"|no kernel image is available|compiled for CUDA|driver version is insufficient"
)
"""What is said where compiled code does not fit torch, CUDA or the driver."""
VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,39}", re.ASCII)


def installed() -> dict[str, str]:
    """Give the versions that this process would get, of what is compared."""
    found = {}
    for name in COMPARED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _checked(said: Mapping[str, str]) -> dict[str, str]:
    return {name: said[name] for name in KNOWN if VERSION.fullmatch(said.get(name, ""))}


def in_words(said: Mapping[str, str]) -> str:
    """Write it as a list; nothing where nothing is known."""
    return ", ".join(f"{name} {version}" for name, version in _checked(said).items())


def heading(said: Mapping[str, str], *, real: bool, elsewhere: bool) -> str:
    """Say what tests are about to run on; nothing where that is what there is here anyway.

    :param said: as the far side's hello has it. :param real: whether it has GPUs, and no pretended
        ones. :param elsewhere: whether it has an environment of its own.
    """
    if not real and not (elsewhere and "torch" in said):
        return ""
    words = in_words({name: said[name] for name in HEADING if name in said})
    return f"the far side has {words}" if words else ""


def of_failure(text: str, said: Mapping[str, str]) -> list[str]:
    """Say what a far side is made of where a failure may come from builds that do not fit.

    :param text: the failure's. :param said: as the far side's hello has it.
    """
    words = in_words(said)
    return [f"the far side has {words}"] if words and UNFIT.search(text) else []


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Say in one line which versions are unlike, of what both sides have; nothing where none is.

    The build that stands after a ``+`` is expected to differ: here there may be no GPU.
    """
    said = _checked(there)
    unlike = [
        f"{name} is {said[name]} there and {here[name]} here"
        for name in COMPARED
        if name in said and name in here and _public(said[name]) != _public(here[name])
    ]
    return "; ".join(unlike)


def _public(version: str) -> str:
    return version.partition("+")[0]
