"""Every exception that this project raises on purpose.

Knows nothing of pytest, of the wire or of any backend.
"""

from __future__ import annotations

__all__ = [
    "EndOfStreamError",
    "FarSideError",
    "LimitError",
    "MarkerError",
    "ProtocolError",
    "RemoteGpuError",
    "SpecError",
    "UnreadyError",
    "UsageError",
]


class RemoteGpuError(Exception):
    """The root of this project's exceptions.

    :ivar what: what has happened. :ivar fix: the way out, where it is told apart from that.
    """

    def __init__(self, what: str = "", *, fix: str = "") -> None:
        super().__init__(f"{what}; {fix}" if fix else what)
        self.what = what
        self.fix = fix


class UsageError(RemoteGpuError):
    """Raised when what the user asked for can't be meant; the session ends with exit status 4."""


class SpecError(UsageError):
    """Raised when ``--remote=`` names no backend, or one that can't read the rest."""


class UnreadyError(SpecError):
    """Raised when a backend lacks something on this host that the user has to mend first."""


class MarkerError(UsageError):
    """Raised when a ``gpu`` mark's argument is unknown, ill-typed or not built yet."""


class ProtocolError(RemoteGpuError):
    """Raised when bytes from the other side break the wire format; no more of them are read."""


class EndOfStreamError(ProtocolError):
    """Raised when a stream from the other side stops before it has said that it ends."""


class FarSideError(RemoteGpuError):
    """Raised when a far side can't be started or ends without having said why.

    :ivar verdict: what becomes of tests that can't run for it.
    """

    verdict = "infra"


class LimitError(FarSideError):
    """Raised when a further worker would cost more than the run may."""

    verdict = "budget"
