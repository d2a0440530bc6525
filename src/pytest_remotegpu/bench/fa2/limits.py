"""What a card can do, as values: FlashAttention-2 needs Ampere or newer, and narrow enough heads.

Knows no torch; who has one asks it and makes a :class:`Device`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["ADVICE", "AMPERE", "STEP", "WIDEST", "Device", "refusal", "widest"]

AMPERE: Final = 8.0
"""The compute capability from which FlashAttention-2 has kernels."""
STEP: Final = 8
"""What a head's width has to be a multiple of."""
NARROW: Final = 128
"""The widest head on cards of capability 8.x."""
WIDEST: Final = 256
"""The widest head on newer ones."""
HOPPER: Final = 9.0
ADVICE: Final = "take L4, A10 or A100, for instance --remote=modal:L4"


@dataclass(frozen=True, slots=True)
class Device:
    """Where a sweep runs.

    :ivar kind: ``cuda`` or ``cpu``.
    :ivar name: of the card, such as ``NVIDIA H200``.
    :ivar capability: of its CUDA cores, such as 9.0; 0 for a CPU.
    :ivar memory: bytes in all; 0 where it is not known.
    """

    kind: str
    name: str
    capability: float = 0.0
    memory: int = 0

    @property
    def is_card(self) -> bool:
        """Whether it is a card."""
        return self.kind == "cuda"


def refusal(device: Device) -> str:
    """Say why a card can't be used for FlashAttention-2 at all; nothing where it can.

    A CPU is not refused: what runs there is the sweep itself, without a number that counts.
    """
    if not device.is_card or device.capability >= AMPERE:
        return ""
    return (
        f"FlashAttention-2 needs an Ampere card or a newer one, with compute capability {AMPERE}, "
        f"and {device.name} has {device.capability}: {ADVICE}"
    )


def widest(device: Device) -> int:
    """Give the widest head that FlashAttention-2 is used with on a card."""
    return WIDEST if device.capability >= HOPPER else NARROW
