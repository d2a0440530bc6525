"""Far sides that can't serve a session at all, and what to do about one that could not even greet.

Reads texts; knows no worker and no backend.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from msgspec import Struct

__all__ = ["Refusal", "way_out"]

OURS: Final = re.compile(
    r"No module named '?(pytest_remotegpu|pytest|msgspec|cloudpickle|pluggy|packaging)\b"
)
INTERPRETER: Final = re.compile(r"^(?:.*: )?(/[!-~]*python[\d.]*): No module named ", re.MULTILINE)
"""How an interpreter says which one it is, where it can't even start a module."""


class Refusal(Struct, frozen=True):
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
        r"No module named '?(pytest_remotegpu|pytest|msgspec|cloudpickle|pluggy|packaging)\b",
        reason,
    ):
        said = INTERPRETER.search(reason)
        python = shlex.quote(said[1]) if said else "PYTHON"
        way = f"on the far side: {python} -m pip install pytest-remotegpu=={version}"
        return Refusal(f"{reason}\n{way}")
    if re.search(r"exit status 12[67]\b|can't start |can't open file ", reason):
        return Refusal(f"{reason}\nname the far interpreter with the ini option remotegpu_python")
    return None
