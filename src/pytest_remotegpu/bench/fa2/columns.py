"""The columns of a sweep: ways to compute one problem, by name, and what each of them needs.

Columns of a user stand beside ours: a function that is given a problem and a device, and gives a
function of query, key and value. Knows ways; what ran and how long it took is known above.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pytest_remotegpu.bench.fa2 import ways
from pytest_remotegpu.bench.fa2.limits import STEP, Device, widest
from pytest_remotegpu.bench.fa2.rows import FA2, FLASH, MASKED, Branch, Direction, Problem
from pytest_remotegpu.errors import UsageError

__all__ = [
    "BUILT_IN",
    "CUDNN",
    "FLASH_ATTN",
    "FLEX",
    "FOLDED",
    "STAND_IN",
    "Column",
    "found",
    "load",
]

CUDNN: Final = "sdpa-cudnn"
FLASH_ATTN: Final = "flash_attn"
FOLDED: Final = "fa2-folded"
FLEX: Final = "flex"
STAND_IN: Final = "stand-in"

Make = Callable[[Problem, Any], ways.Way]


def _nothing(_problem: Problem) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Column:
    """One way to compute problems.

    :ivar name: of it in rows.
    :ivar about: what it is, in some words.
    :ivar make: makes it ready for a problem on a device; what a caller does once is done there.
    :ivar kernels: the family of kernels that has to run; empty where any may.
    :ivar dense: whether it computes all causal tokens in the sliding branch, in place of a window:
        then it is a reference for speed, and is compared with what it does compute.
    :ivar flash: whether heads have to be as FlashAttention-2 wants them.
    :ivar on_cpu: whether it runs on a CPU; :ivar on_card: whether on a card.
    :ivar branches: that it is for.
    :ivar gradients: whether it has any; one without is compared forward only.
    :ivar missing: says what lacks to compute a problem; nothing where nothing does.
    """

    name: str
    about: str
    make: Make
    kernels: str = ""
    dense: bool = False
    flash: bool = False
    on_cpu: bool = False
    on_card: bool = True
    branches: tuple[Branch, ...] = (Branch.SLIDING, Branch.COMPRESSED)
    gradients: bool = True
    missing: Callable[[Problem], str] = _nothing

    def computes(self, problem: Problem) -> Problem:
        """Give the problem that it really computes where it is given one."""
        if self.dense and problem.branch is Branch.SLIDING:
            return replace(problem, window=problem.length)
        return problem

    def refusal(self, problem: Problem, device: Device) -> str:
        """Say why it can't compute a problem on a device; nothing where it can."""
        if not self.gradients and problem.direction is Direction.BACKWARD:
            return f"{self.name} has no gradients"
        if problem.branch not in self.branches:
            return f"{self.name} is no way to compute the {problem.branch} branch"
        if not device.is_card and not self.on_cpu:
            return f"{self.name} needs a CUDA card, and this is {device.name}"
        if device.is_card and not self.on_card:
            return f"{self.name} is for hosts without a card"
        if self.flash:
            for name, width in (("width", problem.width), ("value width", problem.value_width)):
                if width % STEP or width > widest(device):
                    return (
                        f"heads of {name} {width}: FlashAttention-2 takes multiples of {STEP} up "
                        f"to {widest(device)} on {device.name}"
                    )
        return self.missing(problem)


BUILT_IN: Final[Mapping[str, Column]] = {
    column.name: column
    for column in (
        Column(MASKED, "SDPA with a boolean mask; torch chooses", ways.masked, on_cpu=True),
        Column(
            FLASH,
            "SDPA pinned to FlashAttention, all causal tokens",
            functools.partial(ways.dense, backend="flash"),
            "flash",
            dense=True,
            flash=True,
        ),
        Column(
            CUDNN,
            "SDPA pinned to cuDNN, all causal tokens",
            functools.partial(ways.dense, backend="cudnn"),
            "cudnn",
            dense=True,
        ),
        Column(
            FA2,
            "torch's FlashAttention-2 by varlen_attn: a window, or segments",
            ways.varlen,
            "flash",
            flash=True,
            missing=ways.varlen_missing,
        ),
        Column(
            FOLDED,
            "the same by folding: neighbours that see the same become heads",
            ways.varlen_folded,
            "flash",
            flash=True,
            branches=(Branch.COMPRESSED,),
            missing=ways.varlen_missing,
        ),
        Column(
            FLASH_ATTN,
            "FlashAttention-2 of the package flash-attn: a window, or segments",
            ways.flash_attn,
            "flash",
            flash=True,
            missing=ways.flash_attn_missing,
        ),
        Column(FLEX, "flex_attention, compiled, with a block mask", ways.flexible, "triton"),
        Column(
            STAND_IN,
            "chunks on the CPU, where no card is: no number of it counts",
            ways.chunked,
            on_cpu=True,
            on_card=False,
        ),
    )
}
"""Ours, by name."""


def found(name: str, further: Mapping[str, str]) -> Column:
    """Give a column by its name.

    :param further: what a user adds: names, and ``module:function`` that makes each.
    :raises UsageError: where there is none, or it can't be imported.
    """
    if name in further:
        return load(name, further[name])
    if name not in BUILT_IN:
        raise UsageError(
            f"there is no column {name!r}", fix=f"take of {', '.join([*BUILT_IN, *further])}"
        )
    return BUILT_IN[name]


def load(name: str, target: str) -> Column:
    """Make a column of a user's function.

    The function may have attributes: ``kernels``, a part of the names of the kernels that have to
    run; ``on_cpu = True`` where it runs there too; ``gradients = False`` where it has none.

    :param target: ``module:function``.
    :raises UsageError: where it can't be imported, or is no function.
    """
    module, _, function = target.partition(":")
    try:
        make = functools.reduce(getattr, function.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"the column {name!r} is {target!r}, which can't be imported: {error}",
            fix="name it as module:function, in the folder from which this runs or on PYTHONPATH",
        ) from error
    if not callable(make):
        raise UsageError(f"the column {name!r} is {target!r}, which is no function: {make!r}")
    kernels = str(getattr(make, "kernels", ""))
    about = (getattr(make, "__doc__", None) or target).strip().splitlines()[0]
    return Column(
        name,
        about,
        make,
        kernels,
        on_cpu=bool(getattr(make, "on_cpu", False)),
        gradients=bool(getattr(make, "gradients", True)),
    )
