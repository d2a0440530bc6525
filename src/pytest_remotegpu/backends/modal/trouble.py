"""What Modal's errors mean for a session: whose fault, in which words, and the way out.

Told by the classes of the SDK's exceptions, never by their texts. Knows nothing of how calls are
made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

__all__ = ["PASSING", "STATUS", "Kind", "Trouble", "of_error", "old_client", "preempted"]

Kind = Literal["usage", "infra", "lost", "preempted"]
"""For the user to mend, with status 4; no test can run; worth another try, the last for nobody's
fault."""

TRANSPORT: Final = ("ServiceError", "InternalError", "ConnectionError")
"""Names of the SDK's exceptions by which what lies between it and the service has failed."""
REFUSALS: Final = (
    *("AlreadyExistsError", "AuthError", "InvalidError", "NotFoundError", "PermissionDeniedError"),
    *("RequestSizeError", "ResourceExhaustedError", "UnimplementedError", "VersionError"),
)
"""Those with which it says that it will not do what it was asked."""
PASSING: Final = ("lost", "preempted")
"""Those after which another container may do better."""
CONSOLE: Final = "https://modal.com/settings"
STATUS: Final = "https://status.modal.com"

ANSWERS_BADLY: Final = "Modal's service does not answer as it should ({said})"
LOOK: Final = f"see {STATUS}, and the network here"
BAD_TALK: Final = "the container said what can't be taken: {said}"
RETRY: Final = "run it again; where that does not help, please report it"

MEANINGS: Final[tuple[tuple[str, Kind, str, str], ...]] = (
    (
        "AuthError",
        "usage",
        "Modal does not take this token ({said})",
        (
            "make one with: modal token new (or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET; "
            "MODAL_PROFILE picks a profile)"
        ),
    ),
    (
        "PermissionDeniedError",
        "usage",
        "this token may not do that ({said})",
        (
            f"`modal profile list` shows of which workspace it is, and {CONSOLE} that one's "
            "members and payment method"
        ),
    ),
    (
        "VersionError",
        "usage",
        "Modal no longer serves this version of its client ({said})",
        "python -m pip install --upgrade modal",
    ),
    (
        "ImageBuildError",
        "infra",
        "the image could not be built: {said}",
        "mend what its last lines name in the project's requirements or remotegpu_image",
    ),
    (
        "FunctionTimeoutError",
        "infra",
        "the container reached its time-out ({said}), which is the run limit and a minute",
        "raise --remote-run-timeout",
    ),
    (
        "ResourceExhaustedError",
        "lost",
        "Modal has none to give now ({said}): a quota or a rate is exhausted",
        f"see {CONSOLE} for the workspace's limits, or name another GPU",
    ),
    (
        "InvalidError",
        "usage",
        "Modal refuses what was asked for: {said}",
        "change what that names, in the option, the mark or the ini file",
    ),
    (
        "NotFoundError",
        "usage",
        "Modal has no such thing: {said}",
        (
            "`modal app list`, `modal secret list` and `modal volume list` show what there is "
            "in this environment (MODAL_ENVIRONMENT)"
        ),
    ),
    ("InternalFailure", "lost", "Modal has lost the container: {said}", RETRY),
    ("OutputExpiredError", "infra", "Modal has thrown the results away: {said}", RETRY),
    ("DeserializationError", "infra", BAD_TALK, RETRY),
    ("SerializationError", "infra", BAD_TALK, RETRY),
    ("ExecutionError", "infra", BAD_TALK, RETRY),
    (
        "RequestSizeError",
        "infra",
        "what is sent is too large for Modal: {said}",
        "leave files out with remotegpu_exclude",
    ),
    (
        "RemoteError",
        "infra",
        (
            "the call ended without an answer ({said}): the container could not start, the app was "
            "stopped, or the call was cancelled"
        ),
        "run it again; the app is deployed anew where it was stopped",
    ),
    ("ServiceError", "infra", ANSWERS_BADLY, LOOK),
    ("InternalError", "infra", ANSWERS_BADLY, LOOK),
    ("ConnectionError", "infra", ANSWERS_BADLY, LOOK),
    ("ClientClosed", "infra", ANSWERS_BADLY, LOOK),
)
"""Names of the SDK's exceptions, the special ones before those that they are kinds of."""


@dataclass(frozen=True)
class Trouble:
    """What went wrong, for people.

    :ivar what: what has happened. :ivar fix: the way out.
    :ivar built: whether it was the build of an image, whose last lines tell more.
    """

    kind: Kind
    what: str
    fix: str = ""
    built: bool = False

    @property
    def text(self) -> str:
        """Say both."""
        return f"{self.what}; {self.fix}" if self.fix else self.what


def old_client(said: str) -> Trouble:
    """Say that the service does not talk to this version of its client."""
    _, kind, what, fix = next(each for each in MEANINGS if each[0] == "VersionError")
    return Trouble(kind, what.format(said=said), fix)


def is_transport(modal: Any, error: Exception) -> bool:
    """Say whether the service could not be reached, or not be understood, for now."""
    if isinstance(error, OSError) or type(error).__name__ == "StreamTerminatedError":
        return True
    for name, *_ in MEANINGS:
        known = getattr(modal.exception, name, None)
        if known is not None and isinstance(error, known):
            return name in TRANSPORT
    return False


def is_refusal(modal: Any, error: Exception) -> bool:
    """Say whether the service has refused a request; anything else may have been taken by it."""
    kinds = [getattr(modal.exception, name, None) for name in REFUSALS]
    return any(kind is not None and isinstance(error, kind) for kind in kinds)


def preempted(name: str) -> Trouble:
    """Say that a container was taken away after notice; ``name`` may be empty."""
    return Trouble("preempted", f"Modal has taken away (preempted) container {name}".rstrip())


def of_error(modal: Any, error: BaseException, *, during: str, claimed: str = "") -> Trouble:
    """Say what an exception of the SDK's means.

    :param during: what was being done, such as ``looking for the app``.
    :param claimed: how the error of a call begins that another container had begun.
    """
    said = str(error).strip() or type(error).__name__
    if claimed and claimed in said:
        return Trouble("lost", "the container was lost while it worked")
    for name, kind, text, fix in MEANINGS:
        known = getattr(modal.exception, name, None)
        if known is not None and isinstance(error, known):
            what = f"{during}: {text.format(said=said)}"
            return Trouble(kind, what, fix, built=name == "ImageBuildError")
    return Trouble("infra", f"{during}: {type(error).__name__}: {said}", RETRY)
