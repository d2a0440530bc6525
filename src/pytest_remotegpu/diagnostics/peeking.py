"""What one forward pass computes: cross entropies, look-ups in tables, calls of attention.

Sees torch's operations right before they run, so that an index out of range is met before a kernel
aborts the process for it. Knows no check.

The operations come from ``torch.utils._python_dispatch.TorchDispatchMode``, which torch's manual
gives for this though its module's name has an underscore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

__all__ = ["Call", "Entropy", "Misfit", "Seen", "peek"]

REDUCTIONS: Final = ("none", "mean", "sum")
"""By torch's number."""
MOST_CALLS: Final = 3
"""Calls of attention of different shapes that are kept."""
BINARY: Final = {
    "aten::binary_cross_entropy": False,
    "aten::binary_cross_entropy_with_logits": True,
}
"""Operations whose classes are two, and whether they take logits."""


@dataclass(frozen=True, slots=True)
class Entropy:
    """A cross entropy that was computed.

    :ivar value: its mean over the targets that count, in nats, without weights and smoothing.
    :ivar targets: how many count. :ivar distinct: different ones among them.
    """

    classes: int
    value: float
    targets: int
    distinct: int
    reduction: str


@dataclass(frozen=True, slots=True)
class Misfit:
    """Indices that a table or a row of scores does not have.

    :ivar label: whether they are targets of a loss. :ivar size: how many there are.
    :ivar where: the table's name, where it is a parameter.
    """

    values: tuple[int, ...]
    size: int
    label: bool
    where: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of ``scaled_dot_product_attention``, with copies of its tensors."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    causal: bool
    scale: float | None


@dataclass(slots=True)
class Seen:
    """What was seen, in order; nothing ran behind a ``misfit``."""

    entropies: list[Entropy] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    misfit: Misfit | None = None
    value: Any = None


class MisfitError(Exception):
    """Raised in place of an operation that would fail; does not leave this file."""


def peek(model: torch.nn.Module, run: Callable[[], Any]) -> Seen:
    """Run something without gradients, and look on.

    :raises Exception: what it raises.
    """
    import torch  # noqa: PLC0415 -- late

    seen = Seen()
    names = {parameter.data_ptr(): name for name, parameter in model.named_parameters()}
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(_attention(seen))
        stack.enter_context(_operations(seen, names))
        try:
            seen.value = run()
        except Exception:  # the user's code may have wrapped ours
            if seen.misfit is None:
                raise
    return seen


def _operations(seen: Seen, names: dict[int, str]) -> Any:
    """Give a mode that looks at operations before they run."""
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415 -- late

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            del types
            name = str(func.name()).partition(".")[0]
            if name == "aten::embedding":
                seen.misfit = _range(args[1], len(args[0]), names.get(args[0].data_ptr(), ""))
            elif name in {"aten::nll_loss_forward", "aten::nll_loss2d_forward"}:
                seen.misfit = _label(args)
                if seen.misfit is None:
                    seen.entropies.append(_entropy(*args[:2], *args[3:5]))
            if seen.misfit is not None:
                raise MisfitError
            if name in BINARY:
                seen.entropies.append(_binary(args, logits=BINARY[name]))
            return func(*args, **(kwargs or {}))

    return Mode()


def _range(indices: Any, size: int, where: str) -> Misfit | None:
    bad = indices[(indices < 0) | (indices >= size)]
    values = tuple(int(value) for value in bad.unique()[:MOST_CALLS])
    return Misfit(values, size, label=False, where=where) if values else None


def _label(args: Any) -> Misfit | None:
    scores, targets = args[:2]
    classes = scores.shape[1 if scores.ndim > 1 else 0]
    bad = targets[((targets < 0) | (targets >= classes)) & (targets != args[4])]
    values = tuple(int(value) for value in bad.unique()[:MOST_CALLS])
    return Misfit(values, classes, label=True) if values else None


def _entropy(scores: Any, targets: Any, reduction: int, ignored: int) -> Entropy:
    """Take the mean of what the targets have, of log probabilities by class."""
    if scores.ndim == 1:
        scores, targets = scores[None], targets.reshape(1)
    counts = targets != ignored
    picked = scores.gather(1, targets.where(counts, 0).unsqueeze(1)).squeeze(1)
    chosen = -picked[counts].double()
    return Entropy(
        classes=scores.shape[1],
        value=float(chosen.mean()) if chosen.numel() else float("nan"),
        targets=int(chosen.numel()),
        distinct=int(targets[counts].unique().numel()),
        reduction=REDUCTIONS[reduction],
    )


def _binary(args: Any, *, logits: bool) -> Entropy:
    from torch.nn import functional  # noqa: PLC0415 -- late

    scores, targets = (tensor.detach().double() for tensor in args[:2])
    function = functional.softplus
    if logits:  # -t log s(x) - (1 - t) log(1 - s(x))
        mean = (targets * function(-scores) + (1 - targets) * function(scores)).mean()
    else:
        logs = [part.log().clamp(min=-100) for part in (scores, 1 - scores)]  # as torch has it
        mean = -(targets * logs[0] + (1 - targets) * logs[1]).mean()
    reduction = args[4 if logits else 3] if len(args) > (4 if logits else 3) else 1
    return Entropy(
        2, float(mean), targets.numel(), int(targets.unique().numel()), REDUCTIONS[reduction]
    )


@contextmanager
def _attention(seen: Seen) -> Iterator[None]:
    """Hear of calls of attention, whether by the module's name or by one that was imported.

    A mode hears of all but those in functions that are overridden as a whole, as
    ``multi_head_attention_forward`` is; those look the function up by its name.
    """
    from torch.nn import functional  # noqa: PLC0415 -- late
    from torch.overrides import TorchFunctionMode  # noqa: PLC0415 -- late

    original = functional.scaled_dot_product_attention

    def replaced(*args: Any, **kwargs: Any) -> Any:
        _take(seen, args, kwargs)
        return original(*args, **kwargs)

    class Mode(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            del types
            if func is original:
                _take(seen, args, kwargs or {})
            return func(*args, **(kwargs or {}))

    functional.scaled_dot_product_attention = replaced
    try:
        with Mode():
            yield
    finally:
        functional.scaled_dot_product_attention = original


def _take(seen: Seen, args: Any, kwargs: Any) -> None:
    """Keep a call of shapes that were not seen yet."""
    order = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = {**dict(zip(order, args, strict=False)), **kwargs}
    tensors = [given[name].detach() for name in order[:3]]
    mask = given.get("attn_mask")
    if tensors[0].ndim == 3:  # noqa: PLR2004 -- without heads
        tensors = [tensor.unsqueeze(1) for tensor in tensors]
        mask = mask.unsqueeze(1) if mask is not None and mask.ndim == 3 else mask  # noqa: PLR2004
    shapes = [tuple(tensor.shape) for tensor in tensors]
    known = [[tuple(t.shape) for t in (c.query, c.key, c.value)] for c in seen.calls]
    if shapes in known or len(known) >= MOST_CALLS or tensors[0].ndim != 4:  # noqa: PLR2004
        return
    seen.calls.append(
        Call(
            query=tensors[0].clone(),
            key=tensors[1].clone(),
            value=tensors[2].clone(),
            mask=None if mask is None else mask.detach().clone(),
            causal=bool(given.get("is_causal", False)),
            scale=given.get("scale"),
        )
    )
