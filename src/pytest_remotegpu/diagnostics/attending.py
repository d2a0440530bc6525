"""Whether attention kernels agree with attention written out, and which of them really ran.

Knows the words and the formula; what ran is seen by ``tracing``.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.diagnostics import formula, tracing
from pytest_remotegpu.diagnostics.asfound import as_found, seed_all
from pytest_remotegpu.diagnostics.verdict import Finding, Measure, Verdict

if TYPE_CHECKING:
    import torch

__all__ = ["attention_parity"]

Attention = Callable[["torch.Tensor", "torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""Gives the output of query, key and value, each (batch, heads, length, dimension)."""

BOUNDS: Final = {"float64": 1e-10, "float32": 1e-5, "bfloat16": 1.6e-2, "float16": 2e-3}
"""How far a row may be from the right one, by dtype; :func:`attention_parity` has the source."""
LAYOUT: Final = ("batch", "heads", "length", "dimension")
GRADIENTS: Final = 2
"""Times the bound for gradients."""
BACKENDS: Final = {
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "math": "MATH",
}
"""Members of ``torch.nn.attention.SDPBackend``, by the word that is used here."""
KERNELS: Final = {
    "flash_attn::": "flash-attn",
    "FlashAttnFunc": "flash-attn",
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_efficient_attention": "efficient",
    "_scaled_dot_product_cudnn_attention": "cudnn",
    "_scaled_dot_product_fused_attention_overridable": "overrideable",
    "_scaled_dot_product_attention_math": "math",
}
"""What an operation's name has in it, and the kernel it is of; the first that is met counts."""
WRONG: Final = {
    "mask-corner": (
        (
            "the causal mask is in the other corner: {other} where {corner} was meant, with "
            "{queries} queries and {keys} keys"
        ),
        (
            "is_causal=True of torch and a tril() of ones start at the top left, flash-attn since "
            "2.1 at the bottom right, which is what decoding with a cache needs: give an explicit "
            "mask, or torch.nn.attention.bias.causal_lower_right"
        ),
    ),
    "missing-scaling": (
        "the scores are not multiplied by {scale:.4g}: the output is that of a scale of 1",
        "multiply the query or the scores by 1/sqrt(dimension), or give scale= to both",
    ),
    "scaled-twice": (
        "the scores are multiplied by {scale:.4g} twice",
        "take away the scaling of the query: torch and flash-attn scale by themselves",
    ),
    "mask-ignored": (
        "the output is that without a mask: queries see all keys",
        "see where the mask is lost: an argument not passed on, or is_causal left at False",
    ),
}
"""What is so, and what to do, by code; in the order in which they are tried."""


EQUAL_LENGTHS: Final = Finding(
    "equal-lengths",
    "there are as many queries as keys, so that the two corners of a causal mask are the same",
    "run the check once more with fewer queries than keys, as decoding with a cache has them",
    fails=False,
)


@dataclass(frozen=True, slots=True)
class _Ran:
    """What came of one way: parts are the output and three gradients; ``refused`` why not."""

    parts: Mapping[str, torch.Tensor]
    kernel: str = ""
    operation: str = ""
    refused: str = ""


def attention_parity(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    corner: formula.Corner = "top-left",
    scale: float | None = None,
    paths: Mapping[str, Attention] | None = None,
    expect: str | Mapping[str, str] | None = None,
    rtol: float | None = None,
    seed: int = 0,
) -> Verdict:
    """Compare attention kernels with attention that is written out in float32.

    Values and gradients of ``torch.nn.functional.scaled_dot_product_attention`` are compared: as
    torch chooses a kernel by itself, and with each of its backends that takes these inputs here;
    flash-attn's where it is installed and takes them; and those of ``paths``. Which kernel ran is
    read from torch's profiler, since asking for one and getting it are two things. All is computed
    with float32 matrix products of full precision, not TF32.

    A row of the output or of a gradient may differ from the right one by ``rtol`` times its norm
    (or the root mean square of all rows' norms, for smaller rows; or its norm if nothing cancelled,
    as all does where the keys are alike), so that a single wrong row is seen; a gradient's by twice
    that, since the way back rounds once more what the way there has
    rounded. By default it is four roundings of the dtype (of the query, the scores, the
    probabilities, the output): 4 x 2**-8 = 0.016 in bfloat16, which is also the relative bound of
    ``torch.testing.assert_close``, and 4 x 2**-11 = 0.002 in float16; in float32 1e-5, and in
    float64 1e-10 (where the written-out one is in float64, too), as the order of sums makes less
    than a tenth of that.

    :param query: (batch, heads, length, dimension); :param key: and :param value: likewise, with
        another length or, where heads share them, fewer heads.
    :param mask: as torch takes it: true where a query sees a key, or numbers that are added.
    :param causal: whether queries see no later keys, besides ``mask``.
    :param corner: where the causal mask starts if lengths differ: ``top-left``, as torch's
        ``is_causal=True`` has it, or ``bottom-right``, where the last query sees all keys.
    :param scale: of the scores, ``1 / sqrt(dimension)`` where ``None``.
    :param paths: further ways by name, each called with query, key and value alone.
    :param expect: the kernel that has to run where torch chooses: ``flash``, ``efficient``,
        ``cudnn`` or ``flash-attn``; or, of paths, a mapping by their names. Without it, torch's
        choice of ``math`` is a note.
    :param rtol: in place of the bound by dtype.
    :param seed: of the gradient that comes in, and of the random numbers before each path.
    :return: the verdict; its codes are ``mask-corner``, ``missing-scaling``, ``scaled-twice``,
        ``mask-ignored``, ``attention-differs``, ``attention-gradients-differ``, ``not-finite``,
        ``kernel-fallback``, ``equal-lengths``.
    :raises ValueError: for shapes, a dtype, a corner or a name that can't be meant, and where a
        query sees no key, since kernels differ in what they give then.
    """
    import torch  # noqa: PLC0415 -- late

    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    inputs = formula.Inputs(query, key, value, mask, causal, corner, scale)
    own = dict(paths or {})
    expected = {"sdpa": expect} if isinstance(expect, str) else dict(expect or {})
    bound = BOUNDS.get(str(query.dtype).removeprefix("torch."), 0.0) if rtol is None else rtol
    _check(inputs, own, expected, bound)
    with as_found():
        torch.set_float32_matmul_precision("highest")
        seed_all(seed)
        incoming = torch.randn_like(query[..., :1].expand(*query.shape[:-1], value.shape[-1]))
        right = _parts(
            lambda q, k, v: formula.written_out(inputs, q, k, v), inputs, incoming, wide=True
        )
        size = formula.sizes(inputs, incoming)
        ran = {
            name: _run(way, inputs, incoming, seed, may_refuse=name not in {"sdpa", *own})
            for name, way in {**_ways(inputs), **own}.items()
        }
        findings = [
            finding
            for name, one in ran.items()
            if not one.refused and (finding := _judged(name, one, right, size, inputs, bound))
        ]
    findings += _fallbacks(ran, expected, own)
    if causal and own and len({*inputs.lengths}) == 1:
        findings.append(EQUAL_LENGTHS)
    return Verdict("attention_parity", _measured(ran, right, size, bound), tuple(findings))


def _check(
    inputs: formula.Inputs, own: Mapping[str, Attention], expected: Mapping[str, str], bound: float
) -> None:
    query, key, value = inputs.tensors
    shapes = [tuple(tensor.shape) for tensor in inputs.tensors]
    if any(len(shape) != len(LAYOUT) for shape in shapes) or not (
        key.shape[:3] == value.shape[:3]
        and query.shape[0] == key.shape[0]
        and query.shape[3] == key.shape[3]
        and query.shape[1] % key.shape[1] == 0
    ):
        raise ValueError(
            f"query, key and value have the shapes {shapes}; they have to be "
            f"({', '.join(LAYOUT)}), with heads of the query a multiple of the key's"
        )
    dtypes = [str(tensor.dtype) for tensor in inputs.tensors]
    if len({*dtypes}) > 1:
        raise ValueError(f"query, key and value have the dtypes {dtypes}; kernels want one alone")
    if not all(tensor.numel() for tensor in inputs.tensors):
        raise ValueError(f"query, key and value have the shapes {shapes}, one without a number")
    if not bound:
        raise ValueError(f"there is no bound for {query.dtype}; give rtol=")
    if inputs.corner not in {"top-left", "bottom-right"}:
        raise ValueError(f"corner={inputs.corner!r}: say 'top-left' or 'bottom-right'")
    known = {"sdpa", *own}
    taken = {*own} & {*_ways(inputs)}
    if taken or expected.keys() - known:
        raise ValueError(
            f"paths= has names that are used here: {sorted(taken)}"
            if taken
            else f"expect= names {sorted(expected.keys() - known)}; there are {sorted(known)}"
        )
    if bool((~formula.seen_by(inputs, inputs.corner)).all(-1).any()):
        raise ValueError(
            "there are queries that see no key, for which kernels give 0, NaN or a mean: leave "
            "them out, or let them see one"
        )


def _parts(
    way: Attention, inputs: formula.Inputs, incoming: torch.Tensor, *, wide: bool = False
) -> dict[str, torch.Tensor]:
    """Give the output and the gradients of query, key and value; ``wide`` in float32 at least."""
    import torch  # noqa: PLC0415 -- late

    dtype = torch.promote_types(incoming.dtype, torch.float32) if wide else incoming.dtype
    leaves = [t.detach().to(dtype).clone().requires_grad_() for t in inputs.tensors]
    output = way(leaves[0], leaves[1], leaves[2])
    if output.shape != incoming.shape:
        raise ValueError(
            f"a path gave the shape {tuple(output.shape)} where {tuple(incoming.shape)} is due: "
            "let it return (batch, heads, length, dimension)"
        )
    gradients: list[Any] = [None] * len(leaves)
    if output.requires_grad:
        coming = incoming.to(output.dtype)
        gradients = [*torch.autograd.grad(output, leaves, coming, allow_unused=True)]
    found = {"output": output.detach()}
    for name, leaf, gradient in zip(("query", "key", "value"), leaves, gradients, strict=True):
        found[f"gradient of {name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    return found


def _ways(inputs: formula.Inputs) -> dict[str, Attention]:
    """Give torch's ways, and flash-attn's where it is installed."""
    ways: dict[str, Attention] = {"sdpa": _sdpa(inputs, None)}
    ways |= {f"sdpa, {word}": _sdpa(inputs, member) for word, member in BACKENDS.items()}
    if importlib.util.find_spec("flash_attn") is not None:
        ways["flash-attn"] = _flash_attn(inputs)
    return ways


def _sdpa(inputs: formula.Inputs, member: str | None) -> Attention:
    """Make a call of torch's function; the mask is made here where torch's has another corner."""
    import torch  # noqa: PLC0415 -- late
    from torch.nn import attention, functional  # noqa: PLC0415 -- late

    other = len({*inputs.lengths}) > 1 and inputs.corner == "bottom-right"
    by_flag = inputs.causal and inputs.mask is None and not other
    mask = inputs.mask
    if inputs.causal and not by_flag:
        seen = formula.seen_by(inputs, inputs.corner)
        additive = mask is not None and mask.dtype != torch.bool
        mask = mask.masked_fill(~seen, float("-inf")) if mask is not None and additive else seen
    more: dict[str, Any] = (
        {"enable_gqa": True} if inputs.query.shape[1] != inputs.key.shape[1] else {}
    )

    def call(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=by_flag, scale=inputs.scale, **more
        )

    def chosen(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        with attention.sdpa_kernel([getattr(attention.SDPBackend, str(member))]):
            return call(query, key, value)

    return call if member is None else chosen


def _flash_attn(inputs: formula.Inputs) -> Attention:
    def call(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        if inputs.mask is not None:
            raise RuntimeError("flash-attn takes no mask")
        if inputs.causal and len({*inputs.lengths}) > 1 and inputs.corner == "top-left":
            raise RuntimeError("flash-attn's causal mask starts at the bottom right")
        q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
        output: torch.Tensor = importlib.import_module("flash_attn").flash_attn_func(
            q, k, v, softmax_scale=inputs.scale, causal=inputs.causal
        )
        return output.transpose(1, 2)

    return call


def _run(
    way: Attention, inputs: formula.Inputs, incoming: torch.Tensor, seed: int, *, may_refuse: bool
) -> _Ran:
    """Run a way there and back, watched; torch says in warnings why a backend refuses."""
    parts: dict[str, torch.Tensor] = {}
    seed_all(seed)
    with warnings.catch_warnings(record=may_refuse) as said:
        if may_refuse:
            warnings.simplefilter("always")
        try:
            trace = tracing.trace(lambda: parts.update(_parts(way, inputs, incoming)))
        except (RuntimeError, ImportError) as error:
            if not may_refuse:
                raise
            reasons = [str(error), *(str(warning.message) for warning in said or ())]
            lines = [(text.strip() or type(error).__name__).splitlines()[0] for text in reasons]
            return _Ran({}, refused="; ".join(dict.fromkeys(lines)))
    for name, _ in trace.operations:
        for part, kernel in KERNELS.items():
            if part in name:
                return _Ran(parts, kernel, name)
    return _Ran(parts, "written out")


def _allowed(part: str, bound: float) -> float:
    return bound if part == "output" else GRADIENTS * bound


def _judged(
    name: str,
    one: _Ran,
    right: Mapping[str, torch.Tensor],
    size: Mapping[str, torch.Tensor],
    inputs: formula.Inputs,
    bound: float,
) -> Finding | None:
    """Judge one way: the likeliest explanation of a difference, ``None`` where there is none."""
    distances = formula.distances(one.parts, right, size)
    bad = [part for part in distances if not distances[part] <= _allowed(part, bound)]
    if not bad:
        return None
    code = _explained(one.parts["output"], inputs, bound) if "output" in bad else None
    infinite = [part for part in bad if not bool(one.parts[part].isfinite().all())]
    if infinite and code is None:
        return Finding(
            "not-finite",
            f"{name}: {', '.join(infinite)} has NaN or infinity where the right one has none",
            "look for scores that overflow in a small dtype, and for -inf less -inf in a mask",
            (name,),
        )
    apart = f"by {max(distances[part] for part in bad):.4g} of a row's norm (kernel: {one.kernel})"
    if "output" not in bad:
        return Finding(
            "attention-gradients-differ",
            f"{name}: the output is right, and {', '.join(bad)} differs {apart}",
            "look for a detach(), a dtype that is too small on the way back, or a backward of "
            "one's own",
            (name,),
        )
    if code is None:
        return Finding(
            "attention-differs",
            f"{name}: {', '.join(bad)} differs {apart}",
            "compare masks, scale, dropout, the order of heads and how they share keys; then the "
            "dtype that scores and sums are kept in",
            (name,),
        )
    queries, keys = inputs.lengths
    what, next_step = WRONG[code]
    other = "bottom right" if inputs.corner == "top-left" else "top left"
    words = {"other": other, "corner": inputs.corner.replace("-", " "), "scale": inputs.scale}
    said = what.format(queries=queries, keys=keys, **words)
    return Finding(code, f"{name}: {said}", next_step, (name,))


def _explained(output: torch.Tensor, inputs: formula.Inputs, bound: float) -> str | None:
    """Find the usual mistake whose output this is, and not the right one's."""
    import torch  # noqa: PLC0415 -- late

    other = "bottom-right" if inputs.corner == "top-left" else "top-left"
    wrong: dict[str, dict[str, Any]] = {
        "mask-corner": {"corner": other},
        "missing-scaling": {"scale": 1.0},
        "scaled-twice": {"scale": inputs.scale**2},
        "mask-ignored": {"masked": False},
    }
    dtype = torch.promote_types(output.dtype, torch.float32)
    wide = [tensor.detach().to(dtype) for tensor in inputs.tensors]
    for code in WRONG:
        candidate = formula.written_out(inputs, wide[0], wide[1], wide[2], **wrong[code])
        rows = torch.ones_like(candidate[..., 0], dtype=torch.bool)
        if code == "mask-corner":  # rows that see nothing then may hold anything
            rows = formula.seen_by(inputs, other).any(-1).expand(rows.shape)
        if bool(rows.any()) and formula.distance(output[rows], candidate[rows]) <= bound:
            return code
    return None


def _fallbacks(
    ran: Mapping[str, _Ran], expected: Mapping[str, str], own: Mapping[str, Attention]
) -> list[Finding]:
    """Say where another kernel ran than was asked for; nothing of that is silent."""
    found = []
    for name, one in ran.items():
        asked = expected.get(name, "" if name in own else name.partition(", ")[2])
        if asked and not one.refused and one.kernel != asked:
            found.append(_fallback(name, asked, one.kernel, ran))
    if "sdpa" not in expected and ran["sdpa"].kernel == "math":
        found.append(_fallback("sdpa", "", "math", ran))
    return found


def _fallback(name: str, asked: str, kernel: str, ran: Mapping[str, _Ran]) -> Finding:
    wanted = [asked] if asked in BACKENDS else [word for word in BACKENDS if word != "math"]
    reasons = tuple(
        f"{word}: {ran[f'sdpa, {word}'].refused}" for word in wanted if ran[f"sdpa, {word}"].refused
    )
    due = f", where {asked} was asked for" if asked else ": none of the fast kernels was chosen"
    return Finding(
        "kernel-fallback",
        f"{name}: the kernel that ran is {kernel}{due}",
        "see the reasons of the others: dtype, head dimension, a mask where a causal flag would "
        "do, a library that is not installed; numbers of speed and memory are not those of the "
        "fast kernel",
        (name, *reasons),
        fails=bool(asked),
    )


def _measured(
    ran: Mapping[str, _Ran],
    right: Mapping[str, torch.Tensor],
    size: Mapping[str, torch.Tensor],
    bound: float,
) -> tuple[Measure, ...]:
    rows = []
    for name, one in ran.items():
        if one.refused:
            rows.append(Measure(f"kernel of {name}", f"none: {one.refused}"))
            continue
        kernel = f"{one.kernel} ({one.operation})" if one.operation else one.kernel
        rows.append(Measure(f"kernel of {name}", kernel))
        output, *gradients = formula.distances(one.parts, right, size).values()
        rows += [
            Measure(f"difference of {name}", output, bound=f"<= {bound:g} x norm"),
            Measure(
                f"difference of {name}, gradients",
                max(gradients),
                bound=f"<= {GRADIENTS * bound:g} x norm",
            ),
        ]
    return tuple(rows)
