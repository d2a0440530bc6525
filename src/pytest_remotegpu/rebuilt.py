"""Reports of pytest made of data that came from far away; nothing of it is believed unseen.

Knows pytest's reports, and no test.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from pytest_remotegpu.errors import ProtocolError

__all__ = ["Representation", "clean", "compared", "report", "settled"]

OWN_FIELDS: Final = frozenset(
    {"nodeid", "location", "keywords", "outcome", "longrepr", "when", "sections", "duration"}
    | {"start", "stop", "user_properties", "$report_type", "_report_type", "_subtest.context"}
)


def clean(data: dict[str, Any]) -> None:
    """Leave out of a report's data what it must not say, and show sub-tests' parameters."""
    _show_parts(data)
    _drop_methods(data)


def _drop_methods(data: dict[str, Any]) -> None:
    """Leave out attributes that would hide what a report can do, or name another plugin's node."""
    for name in [name for name in data if name not in OWN_FIELDS and _hides(name)]:
        del data[name]


def _hides(name: str) -> bool:
    return name == "node" or name.startswith("__") or hasattr(pytest.TestReport, name)


class _Shown(str):
    """Text that stands for an object: it is its own ``repr``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _show_parts(data: dict[str, Any]) -> None:
    """Show a sub-test's parameters as they were there; pytest sends the text of their ``repr``."""
    context = data.get("_subtest.context")
    kwargs = context.get("kwargs") if isinstance(context, dict) else None
    if isinstance(context, dict) and isinstance(kwargs, dict) and hasattr(pytest, "SubtestReport"):
        shown = {k: _Shown(v) if isinstance(v, str) else v for k, v in kwargs.items()}
        data["_subtest.context"] = {**context, "kwargs": shown}


class Representation:
    """An error that is shown as text and has no place to name: a fixture that is missing, say."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    def toterminal(self, writer: Any) -> None:
        """Write the text as pytest writes such errors."""
        for line in self._text.splitlines():
            writer.line(line)


def report(config: pytest.Config, data: dict[str, Any]) -> pytest.TestReport:
    """Have pytest and its plugins make a report.

    :raises ProtocolError: where they can't, or it could not be shown.
    """
    longrepr = data["longrepr"]
    is_final = not isinstance(longrepr, dict)
    if is_final:  # pytest would look into it for the names of a traceback's parts
        data["longrepr"] = None
    try:
        report = config.hook.pytest_report_from_serializable(config=config, data=data)
        if is_final and isinstance(report, pytest.TestReport):
            report.longrepr = longrepr
        _check(report)
    except ProtocolError:
        raise
    except Exception as error:  # noqa: BLE001 -- hostile data may upset any plugin that reads it
        raise ProtocolError(
            f"a report that can't be rebuilt: {type(error).__name__}: {error}"
        ) from None
    assert isinstance(report, pytest.TestReport)
    return report


def _check(report: Any) -> None:
    """See that a rebuilt report can be shown and written by everybody who will."""
    if not isinstance(report, pytest.TestReport):
        raise ProtocolError(f"a report of the unknown kind {type(report).__name__!r}")
    properties = report.user_properties
    if not isinstance(properties, list) or not all(map(_is_property, properties)):
        raise ProtocolError("a report whose user_properties are no pairs")
    if not isinstance(getattr(report, "wasxfail", ""), str):
        raise ProtocolError("a report whose wasxfail is no text")
    if report.failed and report.longrepr is None:
        report.longrepr = "the far side sent no traceback"
    longrepr = report.longrepr
    if report.skipped and not hasattr(report, "wasxfail"):
        _check_skip(report)
    elif longrepr is not None and not isinstance(longrepr, str | tuple):
        str(longrepr)
        crash = getattr(longrepr, "reprcrash", None)
        if crash is not None and not isinstance(crash.message, str):
            raise ProtocolError("a traceback whose message is no text")


def _is_property(pair: Any) -> bool:
    return isinstance(pair, tuple | list) and len(pair) == 2  # noqa: PLR2004 -- a pair


def settled(found: Any) -> tuple[str, str]:
    """Give the outcome and text that a report takes on later.

    :raises ProtocolError: where they are none.
    """
    match found:
        case (str() as outcome, str() as text):
            return outcome, text
    raise ProtocolError(f"a settled outcome that reads {found!r}")


def compared(found: Any) -> tuple[str, str, str]:
    """Give operator and sides of a comparison that has failed.

    :raises ProtocolError: where they are none.
    """
    match found:
        case (
            str() as operator,
            (bool() as left_is_text, str() as left),
            (bool() as right_is_text, str() as right),
        ):
            return (
                operator,
                left if left_is_text else _Shown(left),
                right if right_is_text else _Shown(right),
            )
    raise ProtocolError(f"a comparison that reads {found!r}")


def _check_skip(report: pytest.TestReport) -> None:
    """See that a skip has its place and its reason, which those who write it take for granted."""
    longrepr: Any = report.longrepr
    if longrepr is None or isinstance(longrepr, str):
        path, lineno, _name = report.location
        report.longrepr = (path, lineno or 0, longrepr or "")
    elif not (isinstance(longrepr, tuple) and [type(part) for part in longrepr] == [str, int, str]):
        raise ProtocolError(f"a skip whose reason is {longrepr!r}")
