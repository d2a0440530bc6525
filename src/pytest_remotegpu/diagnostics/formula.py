"""Attention written out by its formula, and how large its sums are before they cancel.

Knows tensors and masks; which kernels there are is known above.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

__all__ = ["Corner", "Inputs", "distance", "distances", "seen_by", "sizes", "written_out"]

Corner = Literal["top-left", "bottom-right"]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What attention is computed of."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    causal: bool
    corner: Corner
    scale: float

    @property
    def lengths(self) -> tuple[int, int]:
        """How many queries and how many keys there are."""
        return self.query.shape[-2], self.key.shape[-2]

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value."""
        return self.query, self.key, self.value


def seen_by(inputs: Inputs, corner: str) -> torch.Tensor:
    """Give which keys each query sees, in a shape that fits the scores'."""
    import torch  # noqa: PLC0415 -- late

    queries, keys = inputs.lengths
    seen = torch.ones(queries, keys, dtype=torch.bool, device=inputs.query.device)
    if inputs.causal:
        seen = seen.tril(keys - queries if corner == "bottom-right" else 0)
    if inputs.mask is None:
        return seen
    mask = inputs.mask
    return seen & (mask if mask.dtype == torch.bool else mask != float("-inf"))


def written_out(
    inputs: Inputs,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    corner: str = "",
    scale: float | None = None,
    masked: bool = True,
) -> torch.Tensor:
    """Compute attention by its formula, in the dtype of what is given."""
    value = value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)
    weights = _weights(inputs, query, key, corner=corner, scale=scale, masked=masked)
    return weights @ value


def _weights(
    inputs: Inputs,
    query: torch.Tensor,
    key: torch.Tensor,
    *,
    corner: str = "",
    scale: float | None = None,
    masked: bool = True,
) -> torch.Tensor:
    """Give how much of each key's value a query takes, which adds up to 1."""
    import torch  # noqa: PLC0415 -- late

    times = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(times, dim=1)
    scores = query @ key.transpose(-2, -1) * (inputs.scale if scale is None else scale)
    if masked:
        if inputs.mask is not None and inputs.mask.dtype != torch.bool:
            scores = scores + inputs.mask.to(scores.dtype).clamp(min=torch.finfo(scores.dtype).min)
        seen = seen_by(inputs, corner or inputs.corner)
        scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
    return scores.softmax(-1)


def sizes(inputs: Inputs, incoming: torch.Tensor) -> dict[str, torch.Tensor]:
    """Give the norm that each row of the output and of the gradients has if nothing cancels.

    The formulas are those of the values with each sum taken as the root of a sum of squares, which
    is what random signs make of it. Roundings go with this size, not with that of the result: where
    all keys are alike the gradient of the query is zero, and that of a kernel is not. With the
    weights P, the output O and what comes in, G (Dao et al., FlashAttention, 2022, appendix B.4):
    gradient of the scores P x (G V' - D) with D = sum of G x O in each row; roundings of D are the
    same for all keys of a row and add up to D P K.

    :param incoming: the gradient of the output.
    """
    import torch  # noqa: PLC0415 -- late

    dtype = torch.promote_types(inputs.query.dtype, torch.float32)
    query, key, value, coming = (t.detach().to(dtype) for t in (*inputs.tensors, incoming))
    shared = key.shape[1]
    weights = _weights(inputs, query, key)
    key, value = (t.repeat_interleave(query.shape[1] // shared, dim=1) for t in (key, value))
    squares = weights**2
    output = squares @ value**2
    scores = squares * (coming**2 @ (value**2).transpose(-2, -1))
    sums = (coming**2 * (output + (weights @ value) ** 2)).sum(-1, keepdim=True)
    of_query = scores @ key**2 + sums * (weights @ key.abs()) ** 2
    of_key = (scores + squares * sums).transpose(-2, -1) @ query**2
    of_value = squares.transpose(-2, -1) @ coming**2

    def joined(of: torch.Tensor) -> torch.Tensor:
        return of.unflatten(1, (shared, -1)).sum(2)

    found = {
        "output": output,
        "gradient of query": inputs.scale**2 * of_query,
        "gradient of key": inputs.scale**2 * joined(of_key),
        "gradient of value": joined(of_value),
    }
    return {name: part.sum(-1).sqrt() for name, part in found.items()}


def distances(
    parts: Mapping[str, torch.Tensor],
    right: Mapping[str, torch.Tensor],
    size: Mapping[str, torch.Tensor],
) -> dict[str, float]:
    """Give the distance of each part from the right one."""
    return {name: distance(parts[name], right[name], size[name]) for name in right}


def distance(one: torch.Tensor, right: torch.Tensor, size: torch.Tensor | None = None) -> float:
    """Give the largest distance of two rows, relative to the norm of the second.

    A row counts as no smaller than the rows are on average, nor than its ``size``.
    """
    rows = right.double()
    norms = rows.norm(dim=-1)
    floor = float((norms**2).mean().sqrt()) or (1.0 if size is None else 0.0)
    norms = norms.clamp(min=floor)
    if size is not None:
        norms = norms.maximum(size.double())
    apart = (one.double() - rows).norm(dim=-1)
    relative = apart / norms.masked_fill(norms == 0, 1.0)
    return float(relative.max()) if relative.numel() else 0.0
