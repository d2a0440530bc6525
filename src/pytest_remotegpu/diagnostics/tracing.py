"""What really ran: torch's operations with their shapes, kernels, and functions outside of torch.

Looks on without taking part: a dispatch mode would keep ``torch.compile`` from compiling, so the
operations come from torch's profiler and the functions from Python's. Knows no check.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

__all__ = ["Trace", "trace"]

STDLIB: Final = str(Path(sysconfig.get_path("stdlib")))
INPUTS: Final = ("input_shapes", "input_dtypes", "concrete_inputs")
"""What torch's profiler keeps of an operation's inputs; older ones have no dtypes."""
LAUNCHERS: Final = ("/triton/", "/cutlass/", "/numba/")
"""Folders of packages whose kernels torch's dispatcher does not see."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One run of a function.

    :ivar operations: names of torch's operations with shapes and dtypes of their inputs, and names
        of kernels, in order.
    :ivar functions: code outside of torch and of Python's library, in the order of its first entry;
        the function's own is not among it.
    :ivar launches: names of what torch's profiler need not see: kernels of Triton and functions of
        other extensions.
    """

    operations: tuple[tuple[str, str], ...]
    functions: tuple[CodeType, ...]
    launches: frozenset[str]

    @property
    def names(self) -> tuple[str, ...]:
        """The functions as a person looks for them: ``function (file:line)``."""
        return tuple(
            f"{code.co_qualname} ({Path(code.co_filename).name}:{code.co_firstlineno})"
            for code in self.functions
        )


def trace(function: Callable[[], Any]) -> Trace:
    """Call a function and see what runs, in this thread.

    A profiling function of :func:`sys.setprofile` that was set before rests meanwhile.

    :raises Exception: what the function raises.
    """
    entered: dict[CodeType, None] = {}
    launches: set[str] = set()
    here = str(Path(__file__).parent)
    packages = _torch_folders()

    def enter(frame: FrameType, event: str, value: Any) -> None:
        if event == "c_call" and _is_foreign(value):
            launches.add(f"{value.__module__}.{value.__qualname__}")
        elif event == "call":
            file = frame.f_code.co_filename
            if frame.f_code.co_name == "run" and any(part in file for part in LAUNCHERS):
                launches.add(_kernel(frame))
            if not file.startswith((*packages, here)) and not _is_stdlib(file):
                entered[frame.f_code] = None

    before = sys.getprofile()
    with _profiler() as profiler:
        sys.setprofile(enter)
        try:
            function()
        finally:
            sys.setprofile(before)
    own = getattr(function, "__code__", None)
    functions = tuple(code for code in entered if code is not own)
    return Trace(_operations(profiler), functions, frozenset(launches))


def _is_stdlib(file: str) -> bool:
    """Tell Python's library from packages, which may be installed inside its folder."""
    return file.startswith(("<frozen", STDLIB)) and "site-packages" not in file


def _is_foreign(function: Any) -> bool:
    """Whether a built-in function belongs to an extension that is neither torch's nor Python's."""
    module = getattr(function, "__module__", None) or ""
    top = module.partition(".")[0]
    return bool(top) and top != "torch" and top not in sys.stdlib_module_names


def _kernel(frame: FrameType) -> str:
    """Name the kernel that a launcher's method ``run`` starts."""
    function = getattr(frame.f_locals.get("self"), "fn", None)
    return f"{frame.f_code.co_qualname} {getattr(function, '__name__', function)}"


def _torch_folders() -> tuple[str, ...]:
    import torch  # noqa: PLC0415 -- late

    return (str(Path(torch.__file__).parent),)


def _profiler() -> torch.profiler.profile:
    import torch  # noqa: PLC0415 -- late

    kinds = torch.profiler.ProfilerActivity
    activities = [kinds.CPU, kinds.CUDA] if torch.cuda.is_available() else [kinds.CPU]
    return torch.profiler.profile(activities=activities, record_shapes=True, acc_events=True)


def _operations(profiler: torch.profiler.profile) -> tuple[tuple[str, str], ...]:
    """Read the operations: not the calls of CUDA's runtime, whose number depends on the moment."""
    return tuple(
        (event.name, " ".join(str(getattr(event, name, "")) for name in INPUTS))
        for event in profiler.events()
        if not event.name.startswith(("cuda", "ProfilerStep", "[", "Memcpy", "Memset"))
    )
