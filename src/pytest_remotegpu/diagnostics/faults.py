"""What ends a suite of checks, or one of them, besides a verdict.

Knows no check; must not import torch, since that may be what is missing.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

__all__ = ["NotApplicableError", "NotMeantError", "Raised", "UserCodeError", "raised", "user_code"]

OURS: Final = str(Path(__file__).parent)
STDLIB: Final = sysconfig.get_path("stdlib")
PACKAGES: Final = ("site-packages", "dist-packages")


class NotMeantError(Exception):
    """Raised where what was asked for can't be meant; the text says what to write instead."""


class NotApplicableError(Exception):
    """Raised where a check has nothing to look at in this model; the text says why."""


class UserCodeError(Exception):
    """Raised where the user's own code has raised.

    :ivar raised: what.
    """

    def __init__(self, raised: Raised) -> None:
        super().__init__(raised.head)
        self.raised = raised


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception of the user's code, as texts.

    :ivar kind: its class. :ivar message: its text.
    :ivar file: where it came from: the innermost line that is neither ours nor a package's; empty
        where there is none. :ivar line: of the file, from 1 on.
    :ivar traceback: as Python shows it, without our own frames at its head.
    """

    kind: str
    message: str
    file: str
    line: int
    traceback: str

    @property
    def head(self) -> str:
        """One line that says what and where."""
        first = (self.message.strip().splitlines() or [""])[0]
        place = f" ({self.file}:{self.line})" if self.file else ""
        return f"{self.kind}: {first}{place}" if first else f"{self.kind}{place}"

    def to_plain(self) -> dict[str, Any]:
        """Give it for JSON."""
        return {
            "type": self.kind,
            "message": self.message,
            "file": self.file,
            "line": self.line,
            "traceback": self.traceback,
        }


def raised(error: BaseException) -> Raised:
    """Take down an exception, and forget its frames with all that they hold."""
    frames: list[TracebackType] = []
    frame = error.__traceback__
    while frame is not None:
        frames.append(frame)
        frame = frame.tb_next
    files = [each.tb_frame.f_code.co_filename for each in frames]
    began = next((f for f, file in zip(frames, files, strict=True) if _is_own(file)), None)
    if began is None:
        outside = zip(frames, files, strict=True)
        began = next((f for f, file in outside if not file.startswith(OURS)), None)
    shown = traceback.TracebackException(type(error), error, began, compact=True)
    places = [(frame.filename, frame.lineno or 0) for frame in shown.stack]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno or 0))
    own = [(file, line) for file, line in places if _is_own(file)]
    file, line = own[-1] if own else ("", 0)
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return Raised(type(error).__name__, message, _near(file), line, "".join(shown.format()))


def _is_own(file: str) -> bool:
    """Whether a file is the user's: neither ours, nor a package's, nor Python's."""
    if file.startswith((OURS, "<frozen")) or any(part in file for part in PACKAGES):
        return False
    return not file.startswith(STDLIB)


def _near(file: str) -> str:
    """Name a file from the current folder, where it lies below that."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if file and path.is_relative_to(Path.cwd()) else file


@contextmanager
def user_code() -> Iterator[None]:
    """Turn whatever the user's code raises into an error that says so.

    :raises UserCodeError: in place of it; what ends a suite passes through.
    """
    try:
        yield
    except (NotMeantError, NotApplicableError, UserCodeError):
        raise
    except (Exception, SystemExit) as error:
        raise UserCodeError(raised(error)) from error
