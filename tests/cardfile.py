"""Hosts with cards that are not there, for processes that tests start.

A test writes a file of cards and starts a process with an environment in which ``pynvml`` is the
stand-in that reads it. Knows the stand-in's file, and nothing of the package.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

__all__ = ["GIB", "environment", "fake_card", "write_cards"]

STANDIN: Final = Path(__file__).parent / "fakenvml"
GIB: Final = 2**30


def fake_card(
    number: int,
    name: str = "NVIDIA H200",
    *,
    gib: float = 140.5,
    capability: float | str = 9.0,
    **more: Any,
) -> dict[str, Any]:
    """Describe a card.

    :param number: tells its UUID from others'. :param gib: its memory.
    :param more: ``used`` bytes; ``processes``, pairs of a number and bytes; ``mig``, a list of
        slices described as cards are; whatever is ``None`` is what NVML does not tell.
    """
    return {
        "uuid": f"GPU-{number:08x}-0000-4000-8000-{number:012x}",
        "name": name,
        "memory": int(gib * GIB),
        "capability": capability,
        "used": 0,
        "processes": [],
        **more,
    }


def write_cards(
    path: Path,
    cards: Iterable[dict[str, Any] | None],
    *,
    broken: str = "",
    driver: str = "580.65.06",
    cuda: int = 13000,
) -> None:
    """Say which cards there are from now on; a process that asks meanwhile sees the old or the new.

    :param cards: in the order of their indices; ``None`` for one that does not answer.
    :param broken: why the whole library can't be used.
    :param cuda: the version of CUDA that the driver serves; 12080 is 12.8.
    """
    host = {"cards": list(cards), "broken": broken, "driver": driver, "cuda": cuda}
    text = json.dumps(host)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def environment(path: Path) -> dict[str, str]:
    """Give the variables with which a process sees the cards in a file.

    ``CUDA_VISIBLE_DEVICES`` is not among them: what this process has would hide cards.
    """
    rest = os.environ.get("PYTHONPATH")
    paths = os.pathsep.join([str(STANDIN), *([rest] if rest else [])])
    return {"PYTHONPATH": paths, "FAKE_NVML": str(path)}
