"""A container's first words, which may be lies: its name is shown, and a call that it names ended.

Values in, values out.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

__all__ = ["Greeting", "read"]

CALL: Final = re.compile(r"fc-[A-Za-z0-9]+", re.ASCII)
NAME: Final = re.compile(r"[\w-]{1,64}", re.ASCII)


@dataclass(frozen=True)
class Greeting:
    """What they say.

    :ivar container: its name. :ivar call: the id of its call; empty where it names none.
    :ivar age: seconds since it began.
    """

    container: str
    call: str
    age: float


def read(data: bytes) -> Greeting | None:
    """Read them; ``None`` where they can't be meant.

    >>> read(b'{"container": "ta-1", "call": "fc-1", "age": 0.5}')
    Greeting(container='ta-1', call='fc-1', age=0.5)
    """
    try:
        said = json.loads(data)
        name, call, age = said["container"], said["call"], said.get("age", 0.0)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return None
    known = isinstance(call, str) and CALL.fullmatch(call)
    return Greeting(name, call if known else "", age if isinstance(age, int | float) else 0.0)
