"""Files of the project in errors and warnings, named by their place on the user's side.

Knows the plain data that pytest makes of an error, and no report.
"""

from __future__ import annotations

import functools
import re
from typing import Any

__all__ = ["longrepr", "path", "text"]

NATIVE = "ReprEntryNative"
"""The entry of a traceback that is text as Python itself prints it, such as that of a group."""


def path(path: str, paths: tuple[str, str] | None) -> str:
    """Move a path, where it lies in the first of two folders, to the second."""
    if paths and (path == paths[0] or path.startswith(f"{paths[0].rstrip('/')}/")):
        return paths[1] + path[len(paths[0]) :]
    return path


def text(text: str, there: str, here: str) -> str:
    """Move every path in a text that begins with one folder to another."""
    return _beginning(there).sub(lambda _: f"{here}/", text) if there in text else text


def longrepr(data: Any, there: str, here: str) -> Any:
    """Name files by their place on the user's side, in an error or in the place of a skip.

    :param data: a text, a place, or the parts of a traceback, which are changed.
    """
    if isinstance(data, str):
        return text(data, there, here)
    if isinstance(data, tuple):
        return tuple(path(each, (there, here)) if isinstance(each, str) else each for each in data)
    _parts(data, there, here)
    return data


@functools.lru_cache
def _beginning(there: str) -> re.Pattern[str]:
    """Find a folder as the beginning of a path, and not within another one."""
    return re.compile(rf"(?<![\w./\\-]){re.escape(there)}/")


def _parts(data: Any, there: str, here: str) -> None:
    """Name files by their place on the user's side, in the parts of a traceback that hold paths."""
    todo = [data]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            if part.get("type") == NATIVE:
                _native(part.get("data"), there, here)
            for key, value in part.items():
                if key == "path" and isinstance(value, str):
                    part[key] = path(value, (there, here))
                else:
                    todo.append(value)
        elif isinstance(part, list | tuple):
            todo.extend(part)


def _native(entry: Any, there: str, here: str) -> None:
    lines = entry.get("lines") if isinstance(entry, dict) else None
    if isinstance(lines, list):
        lines[:] = [text(line, there, here) if isinstance(line, str) else line for line in lines]
