"""Whether two ways to compute a loss agree, and whether they are two ways at all.

Knows the bounds and the words; what ran is seen by ``tracing``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_remotegpu.diagnostics import tracing
from pytest_remotegpu.diagnostics.asfound import as_found, seed_all
from pytest_remotegpu.diagnostics.verdict import Finding, Measure, Verdict
from pytest_remotegpu.diagnostics.widening import doubled

if TYPE_CHECKING:
    import torch

__all__ = ["losses_agree"]


def losses_agree(
    path_a: Callable[[], Any],
    path_b: Callable[[], Any],
    *,
    rtol: float = 1e-3,
    atol: float = 1e-4,
    same_operations: bool = False,
    seed: int = 0,
) -> Verdict:
    """Compute a loss in two ways and compare; a thing compared with itself does not pass.

    Each path is called twice, from the same seed: once for its values, and once more while it is
    watched which of torch's operations run and which functions outside of torch are entered. Where
    both ran the same, the comparison says nothing, however well the numbers agree: that is what a
    patch of a library makes of it that is applied for one side and holds for both.

    The bounds by default, ``|a - b| <= atol + rtol * |b|`` with 1e-3 and 1e-4, are customary for
    losses of different kernels in float32 and bfloat16; for the same arithmetic in float32 ask for
    less.

    :param path_a: computes and returns a loss: a tensor of any shape or a number, or a list, tuple
        or mapping of these (gradients, for instance). It must not change what ``path_b`` uses, and
        give the same when called again; ``path_b`` likewise.
    :param rtol: relative, :param atol: absolute part of the bound.
    :param same_operations: whether it is right that both run the same, as two sets of weights do,
        or code that was rearranged.
    :param seed: of the random numbers before each call.
    :return: the verdict; its codes are ``same-code``, ``same-operations``, ``nothing-ran``,
        ``not-finite``, ``losses-differ``.
    :raises ValueError: where the results have different parts or shapes or no number at all, and
        for a bound that can't be meant.
    """
    if not (0 <= rtol < math.inf and 0 <= atol < math.inf):
        raise ValueError(f"rtol is {rtol} and atol {atol}; each is a finite number from 0 on")
    paths = {"a": path_a, "b": path_b}
    with as_found():
        values = {side: _values(_call(path, seed)) for side, path in paths.items()}
        _check_parts(values["a"], values["b"])
        ran = {side: tracing.trace(_seeded(path, seed)) for side, path in paths.items()}
        differing = _differing(values["a"], values["b"], rtol, atol)
        largest = _largest(values["a"], values["b"])
    findings = [
        _sameness(ran["a"], ran["b"], _own(path_a, path_b), allowed=same_operations),
        _nothing(ran),
        _not_finite(values),
        differing,
    ]
    measured = (
        *(Measure(f"loss {side}", _shown(parts)) for side, parts in values.items()),
        Measure("largest difference", largest, bound=f"<= {atol:g} + {rtol:g} x |b|"),
        *(Measure(f"operations of {side}", len(t.operations)) for side, t in ran.items()),
        Measure("functions in one only", len({*ran["a"].functions} ^ {*ran["b"].functions})),
    )
    return Verdict("losses_agree", measured, tuple(f for f in findings if f is not None))


def _call(path: Callable[[], Any], seed: int) -> Any:
    seed_all(seed)
    return path()


def _seeded(path: Callable[[], Any], seed: int) -> Callable[[], Any]:
    seed_all(seed)
    return path


def _own(*paths: Callable[[], Any]) -> set[Any]:
    """Give the code of the paths themselves, which differs without saying anything."""
    return {getattr(path, "__code__", None) for path in paths}


def _values(result: Any, name: str = "") -> dict[str, torch.Tensor]:
    """Take a result apart into tensors of doubles on the CPU, by name."""
    import torch  # noqa: PLC0415 -- late

    if isinstance(result, Mapping):
        parts: Any = result.items()
    elif isinstance(result, Sequence) and not isinstance(result, str):
        parts = enumerate(result)
    elif isinstance(result, torch.Tensor | float | int):
        return {name or "loss": doubled(torch.as_tensor(result).detach()).cpu().reshape(-1)}
    else:
        raise ValueError(  # noqa: TRY004 -- as all arguments that can't be meant
            f"a path gave {type(result).__name__}; it has to return a tensor, a number, or a list, "
            "tuple or mapping of these"
        )
    found: dict[str, torch.Tensor] = {}
    for key, part in parts:
        found |= _values(part, f"{name}[{key!r}]")
    return found


def _check_parts(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    shapes = [{name: len(part) for name, part in side.items()} for side in (a, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"the paths gave different parts or sizes: {shapes[0]} and {shapes[1]}; let both "
            "return the same"
        )
    if not any(shapes[0].values()):
        raise ValueError("the paths gave no number at all, so that there is nothing to compare")


def _shown(parts: dict[str, torch.Tensor]) -> float:
    """Give the mean of all values, which of one loss is the loss."""
    import torch  # noqa: PLC0415 -- late

    return float(torch.cat(list(parts.values())).mean())


def _largest(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    return max((float((a[name] - b[name]).abs().max()) for name in a if len(a[name])), default=0.0)


def _differing(
    a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], rtol: float, atol: float
) -> Finding | None:
    bad = tuple(
        name for name in a if bool(((a[name] - b[name]).abs() > atol + rtol * b[name].abs()).any())
    )
    if not bad:
        return None
    ratio = _shown(a) / _shown(b) if _shown(b) else float("inf")
    return Finding(
        "losses-differ",
        f"the results differ by up to {_largest(a, b):.4g}; in the mean, a is {ratio:.6g} times b",
        "a ratio that is a whole number, or one by one, speaks for mean against sum or for another "
        "divisor; else compare what is ignored or masked, label shifting, and dtypes",
        bad if len(a) > 1 else (),
    )


def _not_finite(values: dict[str, dict[str, torch.Tensor]]) -> Finding | None:
    import torch  # noqa: PLC0415 -- late

    bad = tuple(
        f"{side}: {name}"
        for side, parts in values.items()
        for name, part in parts.items()
        if not bool(torch.isfinite(part).all())
    )
    if not bad:
        return None
    return Finding(
        "not-finite",
        "a result is not finite, so that nothing can be compared",
        "run overfit over the side that it is on: it finds the module",
        bad,
    )


def _nothing(ran: dict[str, tracing.Trace]) -> Finding | None:
    idle = tuple(f"path {s}" for s, t in ran.items() if not (t.operations or t.functions))
    if not idle:
        return None
    return Finding(
        "nothing-ran",
        "nothing was computed while the path was called, so that nothing can be said of how",
        "let the path compute the loss, in place of returning one that was computed before",
        idle,
    )


def _sameness(
    a: tracing.Trace, b: tracing.Trace, own: set[Any], *, allowed: bool
) -> Finding | None:
    """Judge whether both sides ran the same."""
    nothing = not (a.operations or a.functions or b.functions)
    if allowed or nothing or a.operations != b.operations:
        return None
    shared = tuple(n for n, code in zip(a.names, a.functions, strict=True) if code in b.functions)
    if {*a.functions} - own == {*b.functions} - own:
        return Finding(
            "same-code",
            f"both sides ran the same code: the same {len(a.operations)} operations, by the same "
            "functions outside of torch; the comparison is of a thing with itself",
            "look for a patch that was applied for one side and holds for both (of "
            "torch.nn.functional, of a model's module); take each side's function before it is "
            "patched, or run each side in a process of its own; where it is the weights that "
            "differ, say same_operations=True",
            shared,
        )
    if a.launches != b.launches:
        return None
    return Finding(
        "same-operations",
        f"both sides ran the same {len(a.operations)} operations with the same shapes in the same "
        "order, by different functions",
        "if they are meant to use different kernels, one is patched or has fallen back; if it is "
        "the arrangement of code that differs, say same_operations=True",
        shared,
    )
