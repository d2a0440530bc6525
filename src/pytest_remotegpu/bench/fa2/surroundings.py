"""In what two measurements differ beside the code, so that their times can't be compared.

Values in, values out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pytest_remotegpu.bench.fa2.measured import Measured

__all__ = ["differences", "facts", "name"]

OF_ENVIRONMENT: Final = ("driver", "capability", "clock", "host")
"""What of the open part of an environment decides about times."""


def facts(measured: Measured) -> dict[str, Any]:
    """Give what times depend on, as far as it is known."""
    device, more = measured.device, measured.environment
    found = {
        "card": (device.device_name or more.get("card")) if device.cuda_available else "none",
        "torch": device.torch_version or more.get("torch"),
        "CUDA": device.cuda_version or more.get("cuda"),
        **{key: more.get(key) for key in OF_ENVIRONMENT},
        "held back": ", ".join(measured.throttled()) or None,
    }
    return {key: value for key, value in found.items() if value not in (None, "")}


def differences(one: Measured, other: Measured) -> list[str]:
    """Say in what they differ.

    What only one of them says is no difference, but for a card that was held back.
    """
    first, second = facts(one), facts(other)
    return [
        f"{key}: {_words(first.get(key, 'no'))} and {_words(second.get(key, 'no'))}"
        for key in dict.fromkeys((*first, *second))
        if (key in first and key in second) or key == "held back"
        if first.get(key) != second.get(key)
    ]


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={each}" for key, each in value.items())
    return str(value)


def name(measured: Measured) -> str:
    """Name a measurement in a few words: card, torch, commit."""
    device = measured.device
    card = device.device_name if device.cuda_available else "no card"
    commit = str(measured.environment.get("commit") or "")[:12]
    torch = f"torch {device.torch_version}" if device.torch_version else ""
    return ", ".join(text for text in (card, torch, commit) if text)
