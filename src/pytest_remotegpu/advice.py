"""What to do about a far side that could not even greet.

Reads texts; knows no worker and no backend.
"""

from __future__ import annotations

import re

__all__ = ["way_out"]


def way_out(reason: str, version: str) -> str:
    """Say how to mend it; nothing where that is not known.

    :param reason: how its stream ended. :param version: this package's here.
    """
    if re.search(
        r"No module named '?(pytest_remotegpu|pytest|msgspec|cloudpickle|pluggy)\b", reason
    ):
        return f"{reason}\non the far side: PYTHON -m pip install pytest-remotegpu=={version}"
    if re.search(r"exit status 12[67]\b|can't start |can't open file ", reason):
        return f"{reason}\nname the far interpreter with the ini option remotegpu_python"
    return ""
