"""Far sides that can't serve a session at all, and what to do about one that could not even greet.

Reads texts; knows no worker and no backend.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Refusal", "way_out"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a far side can't serve a session; it is the user's to mend.

    :ivar loading: whether its conftests or plugins don't load, which is an error of collection.
    """

    text: str
    loading: bool = False


def way_out(reason: str, version: str) -> Refusal | None:
    """Say how to mend it; ``None`` where that is not known.

    :param reason: how its stream ended. :param version: this package's here.
    """
    if re.search(
        r"No module named '?(pytest_remotegpu|pytest|msgspec|cloudpickle|pluggy)\b", reason
    ):
        way = f"on the far side: PYTHON -m pip install pytest-remotegpu=={version}"
        return Refusal(f"{reason}\n{way}")
    if re.search(r"exit status 12[67]\b|can't start |can't open file ", reason):
        return Refusal(f"{reason}\nname the far interpreter with the ini option remotegpu_python")
    return None
