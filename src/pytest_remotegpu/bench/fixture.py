"""What a test gets as ``gpu_benchmark``: its call is checked here, and timed below.

Knows pytest; neither clock nor card.
"""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from pytest_remotegpu.bench import alone, running
from pytest_remotegpu.bench.contestants import Inputs, named
from pytest_remotegpu.bench.measured import Result
from pytest_remotegpu.bench.timing import Budget, Mode
from pytest_remotegpu.errors import UsageError

__all__ = ["GpuBenchmark", "arguments"]

MARKER: Final = "gpu_benchmark"
KINDS: Final[dict[str, str]] = {
    "rounds": "a whole number",
    "warmup": "a whole number",
    "flush": "True or False",
    "modes": "'eager', 'graph', or both",
    "group": "a text",
}
"""What the marker, and each call, may say, and of what kind that is."""


def arguments(marks: Iterable[pytest.Mark]) -> dict[str, Any]:
    """Merge the arguments of marks; those of the nearest count.

    :param marks: of a test, the nearest one first.
    :raises UsageError: for an unknown argument or one of the wrong kind, with the valid list.
    """
    merged: dict[str, Any] = {}
    for mark in marks:
        if mark.args:
            raise UsageError(
                f"the marker {MARKER} takes no positional argument, and got {mark.args[0]!r}",
                fix=f"valid are {_valid()}",
            )
        merged = {**_checked(mark.kwargs, f"the marker {MARKER}"), **merged}
    return merged


def _valid() -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in KINDS.items())


def _checked(given: Mapping[str, Any], who: str) -> dict[str, Any]:
    """Check arguments.

    :raises UsageError: as above.
    """
    for name, value in given.items():
        if name not in KINDS:
            raise UsageError(f"{who} has no argument {name!r}", fix=f"valid are {_valid()}")
        if not _fits(name, value):
            raise UsageError(f"{who}: {name} is {value!r}", fix=f"it is {KINDS[name]}")
    if "rounds" in given or "warmup" in given:
        _budget(given)
    return dict(given)


def _fits(name: str, value: Any) -> bool:
    if name == "modes":
        several = (value,) if isinstance(value, str) else value
        fits = isinstance(several, list | tuple) and bool(several)
        return fits and all(one in running.MODES for one in several)
    kinds = {"flush": bool, "group": str}
    return type(value) is kinds.get(name, int)


def _budget(given: Mapping[str, Any]) -> Budget:
    return replace(Budget(), **{key: given[key] for key in ("rounds", "warmup") if key in given})


class GpuBenchmark:
    """Times functions against each other; what each call came to travels with the test's report."""

    def __init__(self, request: pytest.FixtureRequest, results: list[dict[str, Any]]) -> None:
        """Take the arguments of a test's marks.

        :param results: receives what each call came to, as data.
        :raises UsageError: for a mark that can't be meant.
        """
        self._request = request
        self._results = results
        self._marked = arguments(request.node.iter_markers(MARKER))

    def __call__(  # noqa: PLR0913 -- the rest by name, and most calls need two or three
        self,
        contestant: Callable[..., object] | Mapping[str, Callable[..., object]],
        *,
        reference: Callable[..., object] | Mapping[str, Callable[..., object]] | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        backward: bool = False,
        bytes: float | Mapping[str, float] | None = None,  # noqa: A002 -- the unit, as people say it
        flops: float | Mapping[str, float] | None = None,
        dtype: Any = "",
        device: Any = None,
        **how: Any,
    ) -> Result:
        """Time one function or several in turns, and keep what it came to.

        :param contestant: a function, named ``contestant``, or several by name; the first one is
            on trial.
        :param reference: what it is compared with, likewise; named ``reference``.
        :param args: what all of them are called with; in graphs they are called with copies of
            the tensors in turns, unless ``flush`` is off.
        :param kwargs: the same by name.
        :param backward: time the way back of their results to all tensors that need a gradient.
        :param bytes: that one call reads and writes, for all or by name.
        :param flops: floating-point operations of one call, for all or by name.
        :param dtype: with which they are done, where ``args`` do not tell.
        :param device: a ``torch.device``; otherwise that of ``args``, else the test's own card.
        :param how: ``rounds``, ``warmup``, ``flush``, ``modes`` and ``group``, as in the marker,
            which they override.
        :raises UsageError: for what can't be meant.
        :raises FasterThanLightError: where more seems to be done than the card can.
        """
        how = {**self._marked, **_checked(how, MARKER)}
        functions = named(contestant, reference)
        modes = how.get("modes", running.MODES)
        plan = running.Plan(
            functions,
            Inputs(tuple(args), dict(kwargs or {}), backward),
            moved=_by_name("bytes", bytes, functions),
            flops=_by_name("flops", flops, functions),
            dtype=str(dtype).removeprefix("torch."),
            modes=tuple(Mode(one) for one in ((modes,) if isinstance(modes, str) else modes)),
            insists="modes" in how,
            flush=how.get("flush", True),
            budget=_budget(how),
            group=how.get("group", ""),
        )
        device = self._device(plan.inputs) if device is None else device
        with alone.on(str(device or "cpu"), os.environ):
            result = running.run(plan, device)
        self._results.append(result.plain())
        return replace(result, refuse=_skip)

    def _device(self, inputs: Inputs) -> Any:
        """Find the device: that of the inputs, of the test, or of the process."""
        for one in inputs.tensors():
            if one.device.type != "cpu":
                return one.device
        if self._request.node.get_closest_marker("gpu") and importlib.util.find_spec("torch"):
            return self._request.getfixturevalue("gpu_device")
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if inputs.tensors() or cuda is None or not cuda.is_initialized():
            return None
        return sys.modules["torch"].device("cuda", cuda.current_device())


def _by_name(
    what: str, given: float | Mapping[str, float] | None, functions: Mapping[str, Any]
) -> dict[str, float]:
    """Give a number for each contestant that has one.

    :raises UsageError: for an unknown name, or what is no positive finite number.
    """
    if given is None:
        return {}
    several = given if isinstance(given, Mapping) else dict.fromkeys(functions, given)
    for name, number in several.items():
        if name not in functions:
            raise UsageError(
                f"{what} names {name!r}, which is no contestant",
                fix=f"there is {', '.join(functions)}",
            )
        right = isinstance(number, int | float) and not isinstance(number, bool)
        if not (right and math.isfinite(number) and number > 0):
            raise UsageError(
                f"{what} of {name} is {number!r}", fix="give a positive number, that of one call"
            )
    return dict(several)


def _skip(why: str) -> None:
    """Say that nothing can be said; the test has not passed, and has not failed."""
    pytest.skip(f"the measurement is not valid: {why}")
