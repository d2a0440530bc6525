"""Whether ``torch.compile`` gives what eager code gives, in one graph and without compiling anew.

Knows the words; of torch's compiler only what :func:`_breaks` asks is not under a public name.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pytest_remotegpu.diagnostics import batches, gradients
from pytest_remotegpu.diagnostics.asfound import as_found, model_as_found, seed_all
from pytest_remotegpu.diagnostics.verdict import Finding, Measure, Verdict
from pytest_remotegpu.diagnostics.widening import doubled

if TYPE_CHECKING:
    import torch

__all__ = ["compile_parity"]


def compile_parity(
    function: Callable[..., Any],
    *inputs: Any,
    calls: Sequence[tuple[Any, ...]] = (),
    backend: Any = "inductor",
    rtol: float | None = None,
    seed: int = 0,
) -> Verdict:
    """Run a function eagerly and compiled: values, gradients, graph breaks and recompilations.

    Gradients are those of each parameter, where the function is a module, and of each input that
    requires one. What torch has compiled before in this process is forgotten, so that the first
    call here is the first; dynamic shapes are torch's default.

    A tensor may differ from eager's by ``rtol`` times its norm. By default that is 1e-4 in
    float32, where the order of sums makes less than 1e-5; 0.016 in bfloat16 and 0.002 in float16,
    four roundings, since a compiler leaves some of eager's out; 1e-7 in float64.

    :param function: a module, or a function of tensors and other values; it is not changed, and a
        module is put back as it was.
    :param inputs: of the first call.
    :param calls: inputs of further calls, as training has them: batches of another length, another
        number. Each that makes torch compile anew is a finding.
    :param backend: of ``torch.compile``; ``aot_eager`` and ``eager`` need no compiler of C.
    :param rtol: in place of the bound by dtype.
    :param seed: of the random numbers before each call; random numbers of a compiled function
        differ from eager's, so switch dropout off.
    :return: the verdict; its codes are ``compiled-values-differ``, ``compiled-gradients-differ``,
        ``graph-break``, ``recompiled``, ``nothing-compiled``.
    :raises ValueError: where compiled and eager code return different parts or shapes.
    :raises Exception: what the function or the compiler raises.
    """
    import torch  # noqa: PLC0415 -- late

    graphs: list[Any] = []
    with as_found(), warnings.catch_warnings():
        # torch's compiler causes this one itself, and can't go on where warnings are errors
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not")
        broken = _kept(function, lambda: _breaks(function, inputs, seed))
        torch.compiler.reset()
        try:
            compiled = torch.compile(function, backend=_counting(backend, graphs))
            again: list[str] = []
            differing: dict[str, float] = {}
            for place, arguments in enumerate((inputs, *calls)):
                right = _parts(function, function, arguments, seed)
                reason = "" if place == 0 else _refusal(compiled, function, arguments, seed)
                if reason:
                    again.append(f"call {place}: {reason}")
                parts = _parts(compiled, function, arguments, seed)
                for name, distance in _differing(parts, right, rtol).items():
                    differing[name] = max(distance, differing.get(name, 0.0))
        finally:
            torch.compiler.reset()
    findings = _values_differ(differing)
    if not graphs:
        findings.append(
            Finding(
                "nothing-compiled",
                "torch compiled no graph, so that eager code was compared with itself",
                "look for torch.compiler.disable, TORCHDYNAMO_DISABLE in the environment, or a "
                "function without operations of torch",
            )
        )
    findings += _interruptions(broken, again)
    measured = (
        Measure("calls", 1 + len(calls)),
        Measure("graphs compiled", len(graphs), bound="> 0"),
        Measure("graph breaks", len(broken), bound="0"),
        Measure("recompilations", len(again), bound="0"),
        Measure("tensors that differ", len(differing), bound="0"),
    )
    return Verdict("compile_parity", measured, tuple(findings))


def _breaks(function: Callable[..., Any], inputs: Sequence[Any], seed: int) -> list[str]:
    """Give the reason and the place of each graph break.

    ``torch._dynamo.explain`` has an underscore in its name, and is what torch's own manual gives
    for this; nothing public tells all reasons at once.
    """
    import torch._dynamo  # noqa: PLC0415 -- late

    seed_all(seed)
    copies = _copied(inputs)
    told = torch._dynamo.explain(function)(*copies)  # noqa: SLF001 -- see above
    found = []
    for reason in told.break_reasons:
        text = str(reason.reason).strip().splitlines()[0]
        frames = list(reason.user_stack or ())
        place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
        found.append(f"{text}{place}")
    return found or _whole(function, inputs, seed)


def _whole(function: Callable[..., Any], inputs: Sequence[Any], seed: int) -> list[str]:
    """Give what keeps a function from being one graph, where torch tells no break of one.

    Where it breaks in a loop, torch runs all of that function's own code uncompiled, compiles what
    is called from there, and counts no break.
    """
    import torch  # noqa: PLC0415 -- late
    from torch._dynamo import exc  # noqa: PLC0415 -- late; what fullgraph raises has no other name

    torch.compiler.reset()
    seed_all(seed)
    try:
        torch.compile(function, backend="eager", fullgraph=True)(*_copied(inputs))
    except exc.Unsupported as error:
        text = str(error).strip()
        places = re.findall(r'File "(.+)", line (\d+)', text)
        place = f" ({places[-1][0]}:{places[-1][1]})" if places else ""
        return [f"{text.splitlines()[0]}{place}"]
    finally:
        torch.compiler.reset()
    return []


def _counting(backend: Any, graphs: list[Any]) -> Callable[..., Any]:
    """Wrap a backend so that each graph is noted that torch gives it."""
    import torch._dynamo  # noqa: PLC0415 -- late

    inner = backend if callable(backend) else torch._dynamo.lookup_backend(backend)  # noqa: SLF001

    def count(graph: Any, examples: Any) -> Any:
        graphs.append(None)
        return inner(graph, examples)

    return count


def _copied(inputs: Sequence[Any]) -> Any:
    return batches.mapped(
        tuple(inputs), lambda t: t.detach().clone().requires_grad_(t.requires_grad)
    )


def _kept(function: Callable[..., Any], call: Callable[[], Any]) -> Any:
    """Call something, and put the function back where it is a module."""
    import torch  # noqa: PLC0415 -- late

    if not isinstance(function, torch.nn.Module):
        return call()
    with model_as_found(function):
        return call()


def _refusal(
    compiled: Callable[..., Any], function: Callable[..., Any], inputs: Sequence[Any], seed: int
) -> str:
    """Say why torch would have to compile anew for this call, nothing where it would not."""
    import torch  # noqa: PLC0415 -- late

    try:
        with torch.compiler.set_stance("fail_on_recompile"):
            _parts(compiled, function, inputs, seed)
    except RuntimeError as error:
        if "fail_on_recompile" not in str(error):
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reasons = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
        return "; ".join(reasons or lines)
    return ""


def _parts(
    call: Callable[..., Any], function: Callable[..., Any], inputs: Sequence[Any], seed: int
) -> dict[str, torch.Tensor]:
    """Give copies of the output's tensors and of the gradients."""
    import torch  # noqa: PLC0415 -- late

    def run() -> dict[str, torch.Tensor]:
        arguments = _copied(inputs)
        leaves = {n: t for n, t in batches.tensors(arguments, "inputs") if t.requires_grad}
        if isinstance(function, torch.nn.Module):
            leaves |= {n: p for n, p in function.named_parameters() if p.requires_grad}
        seed_all(seed)
        output = call(*arguments)
        found = dict(batches.tensors(output, "output"))
        if not found:
            raise ValueError(
                f"the function gave {type(output).__name__} without a tensor; let it return "
                "tensors, or a list, tuple or dictionary of them"
            )
        ends = {name: part for name, part in found.items() if part.requires_grad}
        seed_all(seed)
        coming = [torch.randn_like(part) for part in ends.values()]
        gradients: Any = [None] * len(leaves)
        if ends and leaves:
            gradients = torch.autograd.grad(
                [*ends.values()], [*leaves.values()], coming, allow_unused=True
            )
        values = {name: part.detach().clone() for name, part in found.items()}
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
            values[f"gradient of {name}"] = (
                torch.zeros_like(leaf) if gradient is None else gradient.detach().clone()
            )
        return values

    kept: dict[str, torch.Tensor] = _kept(function, run)
    return kept


def _differing(
    parts: dict[str, torch.Tensor], right: dict[str, torch.Tensor], rtol: float | None
) -> dict[str, float]:
    """Give the relative distance of each part that is too far from eager's."""
    shapes = [{name: tuple(part.shape) for name, part in side.items()} for side in (parts, right)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"compiled and eager code gave different parts: {shapes[0]} and {shapes[1]}"
        )
    found = {}
    for name, value in right.items():
        dtype = str(value.dtype).removeprefix("torch.")
        bound = gradients.BOUNDS.get(dtype, 0.0) if rtol is None else rtol
        distance = _distance(doubled(parts[name]), doubled(value))
        if not distance <= bound:
            found[name] = distance
    return found


def _distance(one: torch.Tensor, right: torch.Tensor) -> float:
    """Give the distance relative to the second; the same NaN or infinity in both is none."""
    alike = (one == right) | (one.isnan() & right.isnan())
    if bool(alike.all()):
        return 0.0
    odd = alike & ~right.isfinite()
    one, right = one.masked_fill(odd, 0), right.masked_fill(odd, 0)
    if not bool(right.isfinite().all() & one.isfinite().all()):
        return float("inf")
    return float((one - right).norm() / right.norm().clamp(min=1e-30))


def _values_differ(differing: dict[str, float]) -> list[Finding]:
    values = {name for name in differing if name.startswith("output")}
    found = []
    for code, names in (
        ("compiled-values-differ", values),
        ("compiled-gradients-differ", differing.keys() - values),
    ):
        if names:
            largest = max(differing[name] for name in names)
            found.append(
                Finding(
                    code,
                    f"{len(names)} tensors are off eager's by up to {largest:.4g} of their norm",
                    "try backend='eager', then 'aot_eager': the first that differs tells whether "
                    "tracing, the way back or the generated code is at fault; look for "
                    "is_compiling(), random numbers, and state that changes from call to call",
                    tuple(name for name in differing if name in names),
                )
            )
    return found


def _interruptions(broken: Sequence[str], again: Sequence[str]) -> list[Finding]:
    found = []
    if broken:
        found.append(
            Finding(
                "graph-break",
                f"places where torch leaves the compiled code in a call: {len(broken)}",
                "take what is named out of the function (print, .item(), a branch on a tensor's "
                "value); fullgraph=True makes each an error",
                tuple(broken),
            )
        )
    if again:
        found.append(
            Finding(
                "recompiled",
                f"further calls that made torch compile anew: {len(again)}",
                "give numbers that change as tensors, pad to few lengths, or mark the dimension "
                "with torch._dynamo.mark_dynamic; a first change of a length is compiled once more "
                "by default, dynamically",
                tuple(again),
            )
        )
    return found
