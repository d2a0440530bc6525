"""What Modal's errors mean for a session: whose fault, in which words, and the way out.

Told by the classes of the SDK's exceptions, never by their texts. Knows nothing of how calls are
made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

__all__ = ["STATUS", "Kind", "Trouble", "of_error"]

Kind = Literal["usage", "infra", "lost"]
"""For the user to mend, with status 4; no test can run; worth another try."""

CONSOLE: Final = "https://modal.com/settings"
STATUS: Final = "https://status.modal.com"

ANSWERS_BADLY: Final = (
    f"Modal's service does not answer as it should ({{said}}); see {STATUS}, and the network here"
)
BAD_TALK: Final = "the container said what can't be taken: {said}"

MEANINGS: Final[tuple[tuple[str, Kind, str], ...]] = (
    (
        "AuthError",
        "usage",
        (
            "Modal does not take this token ({said}); make one with: modal token new (or set "
            "MODAL_TOKEN_ID and MODAL_TOKEN_SECRET; MODAL_PROFILE picks a profile)"
        ),
    ),
    (
        "PermissionDeniedError",
        "usage",
        (
            "this token may not do that ({said}); `modal profile list` shows of which workspace "
            f"it is, and {CONSOLE} that one's members and payment method"
        ),
    ),
    (
        "VersionError",
        "usage",
        (
            "Modal no longer serves this version of its client ({said}): "
            "python -m pip install --upgrade modal"
        ),
    ),
    (
        "ImageBuildError",
        "infra",
        "the image could not be built: {said}",
    ),
    (
        "FunctionTimeoutError",
        "infra",
        (
            "the container reached its time-out ({said}), which is the run limit and a minute: "
            "raise --remote-run-timeout"
        ),
    ),
    (
        "ResourceExhaustedError",
        "lost",
        (
            "Modal has none to give now ({said}): a quota or a rate is exhausted; see "
            f"{CONSOLE} for the workspace's limits, or name another GPU"
        ),
    ),
    ("InvalidError", "usage", "Modal refuses what was asked for: {said}"),
    (
        "NotFoundError",
        "usage",
        (
            "Modal has no such thing: {said}; `modal app list`, `modal secret list` and `modal "
            "volume list` show what there is in this environment (MODAL_ENVIRONMENT)"
        ),
    ),
    ("InternalFailure", "lost", "Modal has lost the container: {said}"),
    ("OutputExpiredError", "infra", "Modal has thrown the results away: {said}"),
    ("DeserializationError", "infra", BAD_TALK),
    ("SerializationError", "infra", BAD_TALK),
    ("ExecutionError", "infra", BAD_TALK),
    ("RequestSizeError", "infra", "what is sent is too large for Modal: {said}"),
    (
        "RemoteError",
        "infra",
        "the call was ended from outside ({said}): the app was stopped, or the call cancelled",
    ),
    ("ServiceError", "infra", ANSWERS_BADLY),
    ("InternalError", "infra", ANSWERS_BADLY),
    ("ConnectionError", "infra", ANSWERS_BADLY),
    ("ClientClosed", "infra", ANSWERS_BADLY),
)
"""Names of the SDK's exceptions, the special ones before those that they are kinds of."""
_USAGE: Final = tuple((name, text) for name, kind, text in MEANINGS if kind == "usage")


@dataclass(frozen=True)
class Trouble:
    """What went wrong, for people.

    :ivar built: whether it was the build of an image, whose last lines tell more.
    """

    kind: Kind
    text: str
    built: bool = False


def old_client(said: str) -> Trouble:
    """Say that the service does not talk to this version of its client."""
    return Trouble("usage", dict(_USAGE)["VersionError"].format(said=said))


def of_error(modal: Any, error: BaseException, *, during: str, claimed: str) -> Trouble:
    """Say what an exception of the SDK's means.

    :param during: what was being done, such as ``looking for the app``.
    :param claimed: how the error of a call begins that another container had begun.
    """
    said = str(error).strip() or type(error).__name__
    if claimed in said:
        return Trouble("lost", "the container was taken away (preempted, or lost) while it worked")
    for name, kind, text in MEANINGS:
        known = getattr(modal.exception, name, None)
        if known is not None and isinstance(error, known):
            return Trouble(
                kind, f"{during}: {text.format(said=said)}", built=name == "ImageBuildError"
            )
    return Trouble("infra", f"{during}: {type(error).__name__}: {said}")
