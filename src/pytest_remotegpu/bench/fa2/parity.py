"""Whether a column computes what it should: parity before speed.

All is compared with attention written out in float32, over the keys that the problem lets a query
see. The bounds, and where they are from:

* FlashAttention-2's own rule: the largest error may be twice that of the plain computation in the
  same dtype, for gradients three times, and 1e-5 (the tests of Dao-AILab/flash-attention).
* Each number of the output within 5e-3 in float16 and 7e-3 in bfloat16, absolute and relative.
* On average over the output: 2e-4 from SDPA with a mask, 5e-5 between FlashAttention-2 packed and
  dense, 1e-5 between two runs of the same. These are for float16; bfloat16 has three bits less, and
  eight times that. The reference itself is compared with torch's in float32: 5e-5.

Random numbers alone would let a window pass that is off by one where it is wide. So there is a
second comparison, of the mask: queries of zeros see all of their keys alike, values are 1 and -1,
and one key more or less moves a row by all of its share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.bench.fa2 import columns, formula, masks, tensors, ways
from pytest_remotegpu.bench.fa2.columns import Column
from pytest_remotegpu.bench.fa2.limits import Device
from pytest_remotegpu.bench.fa2.rows import FA2, FLASH, MASKED, Branch, Direction, Parity, Problem
from pytest_remotegpu.bench.fa2.tensors import Inputs

if TYPE_CHECKING:
    import torch

__all__ = ["Check", "Compared", "compare", "not_checked"]

TIMES: Final = (2.0, 3.0, 3.0, 3.0)
"""The error of the plain computation, so often: of the output, and of three gradients."""
MORE: Final = 1e-5
"""And that."""
CLOSE: Final = {"float16": 5e-3, "bfloat16": 7e-3}
"""How far a number of the output may be off, absolute and relative."""
BESIDE_MASKED: Final = 2e-4
BESIDE_DENSE: Final = 5e-5
RERUN: Final = 1e-5
WIDE: Final = 5e-5
"""Mean absolute differences of outputs in float16; the last is of float32."""
COARSER: Final = {"float16": 1.0, "bfloat16": 8.0}
"""How many times as far two neighbouring numbers are apart as those of float16."""
KEYS: Final = 0.5
"""How many keys a mask may seem to be off by; one is one, and roundings of long rows a part."""
ROWS: Final = 2048
"""Queries that are computed at a time, where a mask is needed."""
PACKED: Final = (FA2, columns.FLASH_ATTN)
"""Columns that are compared with dense FlashAttention where both see the same."""


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison.

    :ivar what: was compared, in words.
    :ivar error: that was found; not finite where a number was not.
    :ivar allowed: the largest that passes.
    :ivar measure: of what the error is, in words.
    """

    what: str
    error: float
    allowed: float
    measure: str

    @property
    def passed(self) -> bool:
        """Whether it is within what is allowed; what is no number is not."""
        return math.isfinite(self.error) and self.error <= self.allowed

    def __str__(self) -> str:
        if not math.isfinite(self.error):
            return f"{self.what}: {self.measure if not self.allowed else 'has NaN or infinity'}"
        verb = "is within" if self.passed else "is more than"
        return f"{self.what}: {self.error:.2e} {verb} {self.allowed:.2e} ({self.measure})"


@dataclass(frozen=True, slots=True)
class Compared:
    """What the comparison of a column on a problem said.

    :ivar why: the reason where it did not pass; empty otherwise.
    """

    parity: Parity
    why: str = ""
    checks: tuple[Check, ...] = ()


def not_checked(why: str) -> Compared:
    """Say that there was no comparison, which is never a pass."""
    return Compared(Parity.NOT_CHECKED, why)


def compare(
    column: Column,
    problem: Problem,
    device: Device,
    *,
    way: ways.Way | None = None,
    seed: int = 0,
    gradients: bool = True,
) -> Compared:
    """Compare a column with float32 on what it computes of a problem.

    :param device: where it runs.
    :param way: what the column has made for the problem, if it has.
    :param seed: of the inputs.
    :param gradients: whether they are compared too; a column of a user may have none.
    :raises Exception: what the column raises; that is no pass either.
    """
    own = column.make(problem, device.kind) if way is None else way
    inputs = tensors.make(problem, device.kind, seed=seed)
    found = tuple(_checks(column, own, problem, inputs, device, gradients=gradients))
    failed = [check for check in found if not check.passed]
    if not failed:
        return Compared(Parity.PASSED, "", found)
    others = ", ".join(check.what for check in failed[1:])
    return Compared(
        Parity.FAILED, f"{failed[0]}" + (f"; so are: {others}" if others else ""), found
    )


def _checks(
    column: Column,
    way: ways.Way,
    problem: Problem,
    inputs: Inputs,
    device: Device,
    *,
    gradients: bool,
) -> Iterator[Check]:
    real = column.computes(problem)
    seen = masks.of_problem(real, device.kind)
    got = _parts(way, inputs, gradients=gradients)
    yield from _by_rule(got, inputs, seen, problem.dtype)
    yield from _close(got[0], inputs, seen, problem.dtype)
    again = _parts(way, inputs, gradients=False)
    yield _mean("output run again", got[0], again[0], RERUN * COARSER[problem.dtype])
    yield _mask(way, inputs, seen)
    if column.name == MASKED:
        yield _wide(inputs, seen)
    else:
        beside = _by_torch(inputs, seen)
        bound = BESIDE_MASKED * COARSER[problem.dtype]
        yield _mean("output beside SDPA with a mask", got[0], beside, bound)
    if column.name in PACKED and problem.branch is Branch.SLIDING:
        yield from _dense(column, problem, inputs, device)


def _parts(way: ways.Way, inputs: Inputs, *, gradients: bool) -> list[torch.Tensor]:
    import torch  # noqa: PLC0415 -- late

    if not gradients:
        return [way(*inputs.three)]
    own = inputs.leaves()
    output = way(*own.three)
    if output.shape != own.incoming.shape:
        return [output.detach()]  # which fails, so that its gradients need not be known
    return [output.detach(), *torch.autograd.grad(output, own.three, own.incoming)]


def _by_rule(
    got: Sequence[torch.Tensor], inputs: Inputs, seen: torch.Tensor, dtype: str
) -> Iterator[Check]:
    import torch  # noqa: PLC0415 -- late

    own = getattr(torch, dtype)
    whole: Callable[..., Any] = formula.parts if len(got) > 1 else _output_alone
    right, plain = whole(inputs, seen, torch.float32), whole(inputs, seen, own)
    for name, times, one, exact, coarse in zip(
        tensors.NAMES, TIMES, got, right, plain, strict=False
    ):
        yield _ruled(name, one, exact, coarse, times, dtype)


def _output_alone(inputs: Inputs, seen: torch.Tensor, dtype: torch.dtype) -> list[torch.Tensor]:
    return [formula.output(inputs, seen, dtype)]


def _ruled(
    name: str,
    one: torch.Tensor,
    exact: torch.Tensor,
    plain: torch.Tensor,
    times: float,
    dtype: str,
) -> Check:
    if one.shape != exact.shape:
        return _misshapen(name, one, exact)
    own = _largest(plain, exact)
    measure = f"largest error; {times:g} times that of plain {dtype}, {own:.2e}, and {MORE:g}"
    return Check(name, _largest(one, exact), times * own + MORE, measure)


def _close(got: torch.Tensor, inputs: Inputs, seen: torch.Tensor, dtype: str) -> Iterator[Check]:
    import torch  # noqa: PLC0415 -- late

    exact = formula.output(inputs, seen, torch.float32)
    if got.shape != exact.shape:
        return
    apart = ((got.float() - exact).abs() / (1 + exact.abs())).max()
    yield Check("output, each number", float(apart), CLOSE[dtype], "absolute and relative")


def _mask(way: ways.Way, inputs: Inputs, seen: torch.Tensor) -> Check:
    """Count the keys by which a row's mean is off: its error, times the keys that it sees.

    On average over a head's width, since a key more or less moves all of it by about one share,
    where roundings go either way.
    """
    import torch  # noqa: PLC0415 -- late

    signs = replace(
        inputs,
        query=torch.zeros_like(inputs.query),
        value=torch.where(inputs.value < 0, -1.0, 1.0).to(inputs.value.dtype),
    )
    exact, got = formula.output(signs, seen, torch.float32), way(*signs.three)
    if got.shape != exact.shape:
        return _misshapen("mask", got, exact)
    counts = seen.sum(-1).clamp(min=1)[:, None]
    off = (got.detach().float() - exact).abs().mean(-1) * counts
    return Check("mask", float(off.max()), KEYS, "keys too many or too few, on a row's mean")


def _wide(inputs: Inputs, seen: torch.Tensor) -> Check:
    """Compare the reference itself with torch's attention, both in float32."""
    import torch  # noqa: PLC0415 -- late

    wide = Inputs(*(one.float() for one in (*inputs.three, inputs.incoming)))
    with formula.exact_products():
        theirs = _by_torch(wide, seen)
    ours = formula.output(wide, seen, torch.float32)
    return _mean("reference in float32", theirs, ours, WIDE)


def _by_torch(inputs: Inputs, seen: torch.Tensor) -> torch.Tensor:
    """Compute torch's attention with a mask, some queries at a time, so that long ones fit."""
    import torch  # noqa: PLC0415 -- late

    query, key, value = inputs.three
    shared = query.shape[2] // key.shape[2]
    key, value = ways.widened(key, shared), ways.widened(value, shared)
    pieces = []
    for begin in range(0, query.shape[1], ROWS):
        rows = slice(begin, begin + ROWS)
        output = ways.attend(query[:, rows], key, value, attn_mask=seen[rows])
        sees = seen[rows].any(-1)[:, None, None]
        pieces.append(torch.where(sees, output, torch.zeros_like(output)))
    return torch.cat(pieces, dim=1)


def _dense(column: Column, problem: Problem, inputs: Inputs, device: Device) -> Iterator[Check]:
    """Compare packed FlashAttention with dense FlashAttention where both see all causal keys."""
    dense = columns.BUILT_IN[FLASH]
    if dense.refusal(problem, device):
        return
    causal = replace(problem, window=problem.length)
    one = column.make(causal, device.kind)(*inputs.three)
    other = dense.make(causal, device.kind)(*inputs.three)
    bound = BESIDE_DENSE * COARSER[problem.dtype]
    yield _mean("all causal tokens, packed beside dense", one, other, bound)


def _mean(what: str, one: torch.Tensor, other: torch.Tensor, allowed: float) -> Check:
    if one.shape != other.shape:
        return _misshapen(what, one, other)
    error = float((one.detach().float() - other.detach().float()).abs().mean())
    return Check(what, error, allowed, "mean difference")


def _misshapen(what: str, one: torch.Tensor, wanted: torch.Tensor) -> Check:
    shapes = f"has the shape {tuple(one.shape)}, not {tuple(wanted.shape)}"
    return Check(what, math.nan, 0.0, shapes)


def _largest(one: torch.Tensor, other: torch.Tensor) -> float:
    """Give the largest difference; NaN where one has it."""
    return float((one.detach().float() - other.float()).abs().max())


def key(column: Column, problem: Problem) -> tuple[str, Problem]:
    """Give what a comparison goes with: it is the same for both directions."""
    return column.name, replace(problem, direction=Direction.FORWARD)
