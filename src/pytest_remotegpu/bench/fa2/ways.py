"""Attention by torch's kernels and by FlashAttention's, each a function of query, key and value.

Tensors are token-major, as :mod:`.tensors` makes them. Who made a function has done what a caller
does once; what it does itself is what each call costs. Knows nothing of columns or sweeps.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.bench.fa2 import masks, packed, tensors
from pytest_remotegpu.bench.fa2.rows import Branch, Problem

if TYPE_CHECKING:
    import torch

__all__ = [
    "Way",
    "allowed",
    "attend",
    "chunked",
    "dense",
    "flash_attn",
    "flash_attn_missing",
    "flexible",
    "masked",
    "varlen",
    "varlen_folded",
    "varlen_missing",
    "widened",
]

Way = Callable[["torch.Tensor", "torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""Gives the output of query, key and value."""
Device = Any
SDP: Final = ("flash", "cudnn", "mem_efficient", "math")
"""Backends of ``scaled_dot_product_attention`` as ``torch.backends.cuda`` has them."""


def widened(one: torch.Tensor, times: int) -> torch.Tensor:
    """Copy each head of keys or values for each of the query heads that share it."""
    if times == 1:
        return one
    return one.unsqueeze(3).expand(-1, -1, -1, times, -1).flatten(2, 3)


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any
) -> torch.Tensor:
    """Call torch's attention, which wants heads before tokens."""
    import torch  # noqa: PLC0415 -- late

    query, key, value = (one.transpose(1, 2) for one in (query, key, value))
    output = torch.nn.functional.scaled_dot_product_attention(query, key, value, **options)
    return output.transpose(1, 2)


# with a mask


def masked(problem: Problem, device: Device) -> Way:
    """Use a boolean mask, made once; torch chooses the kernel.

    Heads are shared by ``enable_gqa`` where a fused kernel takes that with a mask, as cuDNN's does,
    and otherwise copied in each call: torch would take its slowest way, and make all else look
    good.
    """
    import torch  # noqa: PLC0415 -- late

    skipped = masks.blind(problem)
    seen = masks.of_problem(problem, device)[skipped:]

    def shared(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return attend(query, key, value, attn_mask=seen, enable_gqa=True)

    def copied(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        times = problem.heads
        return attend(query, widened(key, times), widened(value, times), attn_mask=seen)

    chosen = shared if problem.heads > 1 and _is_fused(shared, problem, device) else copied

    def way(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        output = chosen(query[:, skipped:], key, value)
        return torch.nn.functional.pad(output, (0, 0, 0, 0, skipped, 0))

    return way if skipped else chosen


def _is_fused(way: Way, problem: Problem, device: Device) -> bool:
    """Say whether a card has a kernel for it that is not torch's plain computation."""
    import torch  # noqa: PLC0415 -- late

    if torch.device(device).type != "cuda":
        return False
    inputs = tensors.make(problem, device).leaves()
    query, key, value = inputs.three
    try:
        allowed(way, [name for name in SDP if name != "math"])(
            query[:, masks.blind(problem) :], key, value
        )
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        return False
    return True


# all causal tokens, by one backend


def dense(problem: Problem, device: Device, *, backend: str) -> Way:
    """Use a backend that knows the causal mask; it raises where torch has to take another one.

    In the sliding branch it computes more than was asked for: all tokens before a query, in place
    of those in its window. In the compressed branch it is the same, by folding.

    :param backend: one of :data:`SDP`.
    """
    del device
    shared = problem.branch is Branch.COMPRESSED or problem.heads > 1
    options = {"scale": _scale(problem)} | ({"enable_gqa": True} if shared else {})

    def square(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return attend(query, key, value, is_causal=True, **options)

    even = _even(problem, square)
    return allowed(
        even if problem.branch is Branch.SLIDING else packed.folded(problem, even), (backend,)
    )


def allowed(way: Way, backends: Collection[str]) -> Way:
    """Allow torch some backends alone while a function runs.

    By switches, which take a microsecond: ``sdpa_kernel`` takes many, and a caller that pins does
    it once around all of its steps.

    :param backends: of :data:`SDP`.
    """
    import torch  # noqa: PLC0415 -- late

    cuda = torch.backends.cuda
    switches = [getattr(cuda, f"enable_{name}_sdp") for name in SDP]
    states = [getattr(cuda, f"{name}_sdp_enabled") for name in SDP]
    wanted = [name in backends for name in SDP]

    def way_by_it(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        before = [state() for state in states]
        for switch, on in zip(switches, wanted, strict=True):
            switch(on)
        try:
            return way(query, key, value)
        finally:
            for switch, on in zip(switches, before, strict=True):
                switch(on)

    return way_by_it


def _scale(problem: Problem) -> float:
    """Give what scores are multiplied by."""
    return float(problem.width**-0.5)


def _even(problem: Problem, way: Way) -> Way:
    """Fill the narrower heads up with zeros, where kernels want one width for all.

    :param way: is given the scale of the scores, which goes with the width before that.
    """
    import torch  # noqa: PLC0415 -- late

    width, other = problem.width, problem.value_width
    if width == other:
        return way
    pad = torch.nn.functional.pad

    def way_of_one_width(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        if width > other:
            return way(query, key, pad(value, (0, width - other)))[..., :other]
        return way(pad(query, (0, other - width)), pad(key, (0, other - width)), value)

    return way_of_one_width


# FlashAttention-2 that torch brings along


@functools.cache
def _varlen_options() -> frozenset[str]:
    """Give the names of what torch's ``varlen_attn`` takes; none where there is no such thing."""
    try:
        from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 -- late, newer torch
    except ImportError:
        return frozenset()
    return frozenset(inspect.signature(varlen_attn).parameters)


def varlen_missing(problem: Problem) -> str:
    """Say why torch's ``varlen_attn`` can't be used; nothing where it can."""
    import torch  # noqa: PLC0415 -- late

    has = _varlen_options()
    if not has:
        return f"torch {torch.__version__} has no varlen_attn; 2.11 has"
    if "window_size" not in has and problem.branch is Branch.SLIDING:
        return f"varlen_attn of torch {torch.__version__} takes no window; that of 2.11 does"
    return ""


def _packed(problem: Problem, window: tuple[int, int]) -> packed.Packed:
    """Make torch's function ready: attention of packed sequences, through its custom operation."""
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 -- late, newer torch

    has = _varlen_options()
    options: dict[str, Any] = {"scale": _scale(problem)}
    if "window_size" in has:
        options["window_size"] = window
    else:
        options["is_causal"] = window == (-1, 0)
    if "enable_gqa" in has:
        options["enable_gqa"] = True
    return functools.partial(varlen_attn, **options)


def _of_batch(problem: Problem, tokens: int, device: Device, attend: packed.Packed) -> Way:
    """Give a batch of sequences of one length to a function of packed ones; no copy is made."""
    import torch  # noqa: PLC0415 -- late

    ends = torch.arange(problem.batch + 1, dtype=torch.int32).mul(tokens).to(device)

    def way(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        three = (one.flatten(0, 1) for one in (query, key, value))
        output = attend(*three, ends, ends, tokens, tokens)
        return output.unflatten(0, (problem.batch, tokens))

    return way


def varlen(problem: Problem, device: Device) -> Way:
    """Use FlashAttention-2 through ``varlen_attn``: with a window, or by segments.

    Its window ``(left, 0)`` has ``left`` keys before the query's own one, so that ``window - 1`` is
    given for a window that counts the token itself.
    """
    if problem.branch is Branch.COMPRESSED:
        attend = _packed(problem, (-1, -1))
        return _even(problem, packed.segments(problem, device, attend))
    assert problem.window is not None
    attend = _packed(problem, (min(problem.window, problem.length) - 1, 0))
    return _even(problem, _of_batch(problem, problem.length, device, attend))


def varlen_folded(problem: Problem, device: Device) -> Way:
    """Use FlashAttention-2 through ``varlen_attn`` for the compressed branch, by folding."""
    attend = _packed(problem, (-1, 0))
    square = _of_batch(problem, masks.keys(problem), device, attend)
    return packed.folded(problem, _even(problem, square))


# FlashAttention-2 of its own package


def flash_attn_missing(_problem: Problem) -> str:
    """Say why the package flash-attn can't be used; nothing where it can."""
    try:
        import flash_attn as _  # noqa: F401, PLC0415 -- an extension that not everybody has
    except ImportError as error:
        return f"flash_attn can't be imported: {error}"
    return ""


def flash_attn(problem: Problem, device: Device) -> Way:
    """Use FlashAttention-2 of the package flash-attn: with a window, or by segments."""
    from flash_attn import (  # noqa: PLC0415 -- an extension that not everybody has
        flash_attn_func,
        flash_attn_varlen_func,
    )

    scale = _scale(problem)
    if problem.branch is Branch.COMPRESSED:
        attend = functools.partial(flash_attn_varlen_func, softmax_scale=scale)
        return _even(problem, packed.segments(problem, device, attend))
    assert problem.window is not None
    attend = functools.partial(
        flash_attn_func,
        softmax_scale=scale,
        causal=True,
        window_size=(min(problem.window, problem.length) - 1, 0),
    )
    return _even(problem, attend)


# others


def flexible(problem: Problem, device: Device) -> Way:
    """Use ``flex_attention``, compiled, with a block mask that is made once.

    A gradient that is computed again and again needs what torch would otherwise give away in the
    first time ("donated buffers"), and dynamo compiles one function for a few shapes only: both are
    set in this process.
    """
    import torch  # noqa: PLC0415 -- late
    import torch._functorch.config  # noqa: PLC0415 -- as its own error message says
    from torch.nn.attention import flex_attention as flex  # noqa: PLC0415 -- late

    window, block, stride = problem.window, problem.block, problem.stride
    skipped = masks.blind(problem)

    def in_window(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
        return (key <= query) & (query - key < window)

    def has_ended(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
        return key * stride + block - 1 <= query + skipped

    rule = in_window if problem.branch is Branch.SLIDING else has_ended
    queries, keys = problem.length - skipped, masks.keys(problem)
    blocks = flex.create_block_mask(rule, None, None, queries, keys, device=device)
    torch._functorch.config.donated_buffer = False  # noqa: SLF001 -- as above
    torch.compiler.reset()
    attend = torch.compile(flex.flex_attention, dynamic=False)

    def way(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        three = (one.transpose(1, 2) for one in (query[:, skipped:], key, value))
        output = attend(*three, block_mask=blocks, enable_gqa=problem.heads > 1).transpose(1, 2)
        return torch.nn.functional.pad(output, (0, 0, 0, 0, skipped, 0)) if skipped else output

    return way


def chunked(problem: Problem, device: Device) -> Way:
    """Use no mask that is longer than a window: chunks of queries with the keys that they can see.

    It stands in for a kernel where there is no card.
    """
    import torch  # noqa: PLC0415 -- late

    heads = problem.heads
    if problem.branch is Branch.COMPRESSED:

        def square(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            times = query.shape[2] // key.shape[2]
            return attend(query, widened(key, times), widened(value, times), is_causal=True)

        return packed.folded(problem, square)
    assert problem.window is not None
    window = min(problem.window, problem.length)
    cuts = []
    for begin in range(0, problem.length, window):
        end, first = min(begin + window, problem.length), max(0, begin - window + 1)
        seen = masks.banded(end - begin, end - first, window, device=device)
        cuts.append((slice(begin, end), slice(first, end), seen))

    def way(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        key, value = widened(key, heads), widened(value, heads)
        chunks = [
            attend(query[:, rows], key[:, near], value[:, near], attn_mask=seen)
            for rows, near, seen in cuts
        ]
        return torch.cat(chunks, dim=1)

    return way
