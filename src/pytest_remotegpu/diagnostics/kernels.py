"""Whether a model with other kernels is the model, and whether the other kernels ran at all.

Knows the bounds, the words and Liger's door; what a patch replaces is seen by ``patching``, and
what ran by ``tracing``.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.diagnostics import (
    batches,
    gradients,
    paired,
    patched,
    patching,
    steps,
    tracing,
    trials,
)
from pytest_remotegpu.diagnostics.asfound import (
    as_found,
    model_as_found,
    seed_all,
    without_dropout,
)
from pytest_remotegpu.diagnostics.making import model_of
from pytest_remotegpu.diagnostics.verdict import Finding, Measure, Verdict
from pytest_remotegpu.diagnostics.widening import doubled

if TYPE_CHECKING:
    import torch

__all__ = ["kernels_parity"]

ROUNDED: Final = 2
"""Times the plain model's own error in 16 bits, which another kernel may have."""
LIGER: Final = "liger_kernel"


@dataclass(slots=True)
class _Side:
    """What one side has given.

    :ivar values: the loss and the gradients. :ivar outputs: of modules that are watched.
    :ivar dtypes: that modules gave their outputs in.
    """

    loss: float = 0.0
    gradients: gradients.Gradients = field(default_factory=dict)
    outputs: dict[str, torch.Tensor] = field(default_factory=dict)
    dtypes: set[torch.dtype] = field(default_factory=set)
    ran: tracing.Trace = field(default_factory=lambda: tracing.Trace((), (), frozenset()))


def kernels_parity(
    make_model: Callable[[], torch.nn.Module],
    batch: Any,
    *,
    loss: Callable[[torch.nn.Module, Any], torch.Tensor] = batches.loss_of,
    patch: Callable[[torch.nn.Module], Any] | None = None,
    expect: Sequence[str] = (),
    same_operations: bool = False,
    rtol: float | None = None,
    seed: int = 0,
) -> Verdict:
    """Compare a model with the same model after a patch: loss, gradients, and what really ran.

    The plain side runs first, before the patch has touched anything. Then it is seen what the patch
    has replaced: modules, their ``forward``, methods of their classes, and functions of any module
    of Python; the latter hold for the whole process, and are put back. Each side runs once for its
    values and once more while it is watched, so that a kernel that falls back to plain operations
    is found, however well the numbers agree.

    Loss and gradients may be apart by a part of their size: 1e-4 in float32, 0.016 in bfloat16 and
    0.002 in float16, four roundings, and 1e-7 in float64, as for :func:`compile_parity`. In 16 bits
    both sides are compared with the plain model in float32, and the patched one may be off by twice
    what the plain one is: the rule of flash-attn's own tests.

    :param make_model: makes the plain model, on its device; called some times.
    :param batch: what the model is given. :param loss: gives the loss of ``(model, batch)``; by
        default the model gives it, see :func:`overfit`.
    :param patch: puts other kernels into a model, or returns a model that has them. By default
        Liger's, by the ``config.model_type`` of a model of transformers.
    :param expect: patterns of names of modules that have to be patched, ``*norm*`` for instance.
    :param same_operations: whether it is right that a patched module runs the same operations.
    :param rtol: in place of the bound by dtype. :param seed: of the random numbers before each
        model is made and run; dropout is off.
    :return: the verdict. Its codes: ``kernels-unavailable``, ``nothing-patched``,
        ``patched-already``, ``same-code``, ``kernel-fallback``, ``not-patched``,
        ``other-parameters``, ``not-finite``, ``kernels-differ``, ``kernel-gradients-differ``, and
        the notes ``patched-globally``, ``patched-not-run``.
    :raises Exception: what the factory, the loss or a patch of one's own raises.
    """
    with as_found(), ExitStack() as stack:
        check = _Check(make_model, batch, loss, seed, stack)
        try:
            change = _liger() if patch is None else patch
            return check.verdict(change, expect, rtol=rtol, same_operations=same_operations)
        except _UnavailableError as error:
            return Verdict("kernels_parity", (), (_unavailable(str(error)),))
        except (RuntimeError, ValueError, ImportError) as error:
            if patch is not None or not check.in_patch:
                raise
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            return Verdict("kernels_parity", (), (_unavailable(f"Liger raised {said}"),))


class _UnavailableError(Exception):
    """Raised where there are no kernels to compare with; does not leave this file."""


def _liger() -> Callable[[torch.nn.Module], Any]:
    """Give what patches a model with Liger's kernels, by the type that its config names."""
    try:
        found = importlib.util.find_spec(LIGER)
    except ValueError:  # Python has been told that there is none
        found = None
    if found is None:
        raise _UnavailableError("liger-kernel is not installed")
    try:
        door = importlib.import_module(f"{LIGER}.transformers")
        # the name has an underscore, and is what Liger's manual and transformers' Trainer call
        apply: Callable[[torch.nn.Module], Any] = door._apply_liger_kernel_to_instance  # noqa: SLF001
    except (ImportError, AttributeError) as error:
        raise _UnavailableError(f"liger-kernel can't be used: {error}") from error
    return apply


def _unavailable(reason: str) -> Finding:
    return Finding(
        "kernels-unavailable",
        f"{reason}, so that nothing was compared",
        "install it where the test runs (pip install liger-kernel transformers; it needs a card, "
        "and a model there), or give patch= what puts other kernels in; to leave the test out "
        "elsewhere, pytest.importorskip('liger_kernel')",
    )


class _Check:
    """One check: both sides, and what was replaced between them."""

    def __init__(
        self,
        make_model: Callable[[], torch.nn.Module],
        batch: Any,
        loss: Callable[[torch.nn.Module, Any], torch.Tensor],
        seed: int,
        stack: ExitStack,
    ) -> None:
        self.make_model, self.batch, self.loss = make_model, batch, loss
        self.seed, self.stack = seed, stack
        self.in_patch = False

    def verdict(
        self,
        patch: Callable[[torch.nn.Module], Any],
        expect: Sequence[str],
        *,
        rtol: float | None,
        same_operations: bool,
    ) -> Verdict:
        """Run both sides, and judge."""
        plain, other = self._made(), self._made()
        before = patching.parts(other)
        first = self._side(plain)  # what it gives while nothing is patched
        right = self._precise(first)
        stock = patching.stock(plain, other)
        self.stack.callback(lambda: patching.put_back(patching.replaced(stock)))
        self.in_patch = True
        returned = patch(other)
        after = returned if _is_module(returned) else other
        changes = patching.replaced(stock)
        own = patching.parts(after)
        names = [n for n, part in own.items() if part != before.get(n)]
        lacking = patched.lacking(plain, after)
        if lacking is not None:
            return Verdict("kernels_parity", (), (lacking,))
        if after is not other:
            after.load_state_dict(plain.state_dict())
            self.stack.enter_context(without_dropout(after))
        second = self._side(after, names)
        patching.put_back(patching.replaced(stock))
        self.in_patch = False
        first.outputs, first.ran = self._watched(plain, names)
        new = patched.codes([own[n].forward for n in names] + [change.now for change in changes])
        findings = [
            *patched.untouched(names, changes),
            patched.already(first.ran, new, LIGER if patch.__module__.startswith(LIGER) else ""),
            *patched.same(first.ran, second.ran, names, changes, allowed=same_operations),
            patched.not_patched(names, before, expect),
            *self._apart(first, second, right, rtol),
            patched.globally(changes),
            patched.not_run(names, second.ran),
        ]
        measured = _measured(first, second, right, names, changes, own)
        return Verdict("kernels_parity", measured, tuple(f for f in findings if f is not None))

    def _made(self) -> torch.nn.Module:
        seed_all(self.seed)
        model = model_of(self.make_model)
        self.stack.enter_context(model_as_found(model))
        self.stack.enter_context(without_dropout(model))
        return model

    def _run(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        for parameter in model.parameters():
            parameter.grad = None
        seed_all(self.seed)
        loss = self.loss(model, batch)
        loss.backward()
        return loss

    def _side(self, model: torch.nn.Module, names: Sequence[str] | None = None) -> _Side:
        """Run a model for its values, and a second time to see what runs."""
        side = _Side()
        with model_as_found(model), steps.watched(model, side.dtypes):
            side.loss = trials.number(self._run(model, self.batch))
            side.gradients = gradients.taken(model)
        if names is not None:
            side.outputs, side.ran = self._watched(model, names)
        return side

    def _watched(
        self, model: torch.nn.Module, names: Sequence[str]
    ) -> tuple[dict[str, torch.Tensor], tracing.Trace]:
        """See what runs, with marks around the modules of these names; and what they give."""
        import torch  # noqa: PLC0415 -- late

        outputs: dict[str, torch.Tensor] = {}

        def mark(what: str, *_: object) -> None:
            with torch.profiler.record_function(patched.MARK + what):
                pass

        def gave(name: str, _module: object, _inputs: object, output: Any) -> None:
            mark(f"end {name}")
            for _, tensor in batches.tensors(output):
                outputs.setdefault(name, tensor.detach().clone())

        with model_as_found(model), ExitStack() as stack:
            for name, module in model.named_modules():
                if name in names:
                    begin = module.register_forward_pre_hook(partial(mark, f"begin {name}"))
                    stack.callback(begin.remove)
                    stack.callback(module.register_forward_hook(partial(gave, name)).remove)
            return outputs, tracing.trace(partial(self._run, model, self.batch))

    def _precise(self, plain: _Side) -> _Side:
        """Give the plain model's values in float32, where it computes in 16 bits."""
        if paired.lowest(plain.dtypes) not in paired.LOW:
            return plain
        model = self._made()
        kept = [(p, p.data) for p in (*model.parameters(), *model.buffers())]
        for tensor, data in kept:
            self.stack.callback(partial(setattr, tensor, "data", data))
        model.float()
        side = _Side()
        wide = batches.mapped(self.batch, lambda t: t.float() if t.is_floating_point() else t)
        try:
            side.loss = trials.number(self._run(model, wide))
        except RuntimeError:  # a dtype that is written into the model
            return plain
        side.gradients = gradients.taken(model)
        return side

    def _apart(self, plain: _Side, other: _Side, right: _Side, rtol: float | None) -> list[Finding]:
        """Judge loss and gradients."""
        dtype = paired.lowest(plain.dtypes | other.dtypes)
        bound = gradients.BOUNDS[dtype] if rtol is None else rtol
        usual, errors = _errors(plain, right), _errors(other, right)
        bad = [n for n, e in errors.items() if not e <= max(bound, ROUNDED * usual[n])]
        odd = [n for n in bad if not _is_finite(other, n) and _is_finite(plain, n)]
        first = _first(plain.outputs, other.outputs, max(bound, ROUNDED * max(usual.values())))
        where = f"; the first patched module that gives something else is {first}" if first else ""
        found = []
        if odd:
            found.append(
                Finding(
                    "not-finite",
                    f"with the patch {len(odd)} values are NaN or infinite{where}",
                    "look for rows that are masked whole, a division by a sum that may be 0, and "
                    "the dtype that the kernel adds up in",
                    tuple(odd),
                )
            )
        elif "loss" in bad:
            found.append(
                Finding(
                    "kernels-differ",
                    f"the loss is {other.loss:.6g} with the patch and {plain.loss:.6g} without "
                    f"({dtype}){where}",
                    "compare eps, scale, what is ignored or masked, the mean's divisor, and the "
                    "dtype that the kernel adds up in",
                )
            )
        if names := tuple(n for n in bad if n != "loss" and n not in odd):
            worst = max(errors[n] for n in names)
            found.append(
                Finding(
                    "kernel-gradients-differ",
                    f"{len(names)} gradients are off by up to {worst:.3g} of their norm ({dtype})",
                    "where the loss is right, look at the kernel's backward: a sum that is "
                    "missing, a detach(), a buffer that it writes over",
                    names,
                )
            )
        return found


def _is_module(thing: Any) -> bool:
    import torch  # noqa: PLC0415 -- late

    return isinstance(thing, torch.nn.Module)


def _errors(side: _Side, right: _Side) -> dict[str, float]:
    """Give the distance of the loss and of each gradient from the right one, relative to it."""
    distance = abs(side.loss - right.loss)
    loss = 0.0 if side.loss == right.loss else distance / max(abs(right.loss), 1e-30)
    return {"loss": loss} | gradients.distances(side.gradients, right.gradients)


def _is_finite(side: _Side, name: str) -> bool:
    import torch  # noqa: PLC0415 -- late

    value = torch.tensor(side.loss) if name == "loss" else side.gradients[name]
    return bool(torch.isfinite(value).all())


def _first(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor], bound: float) -> str:
    """Name the first module whose outputs differ, in the order in which they came."""
    for name, value in other.items():
        right = one.get(name)
        if right is None or right.shape != value.shape:
            continue
        distance = float((doubled(value) - doubled(right)).norm())
        if not distance <= bound * max(float(doubled(right).norm()), 1e-30):
            return name or "the model itself"
    return ""


def _measured(
    plain: _Side,
    other: _Side,
    right: _Side,
    names: Sequence[str],
    changes: Sequence[patching.Replaced],
    own: Mapping[str, patching.Part],
) -> tuple[Measure, ...]:
    errors = _errors(other, right)
    kinds = {f"{getattr(own[n].forward, '__qualname__', own[n].forward)}" for n in names}
    return (
        Measure("loss without", plain.loss),
        Measure("loss with", other.loss),
        Measure("computed in", paired.lowest(plain.dtypes | other.dtypes)),
        Measure(
            "largest difference of a gradient",
            max([0.0, *(e for n, e in errors.items() if n != "loss")]),
        ),
        Measure("modules patched", len(names), bound="> 0"),
        Measure("patched with", ", ".join(sorted(kinds)) or "nothing"),
        Measure("functions replaced in the process", len(changes)),
        Measure("modules", ", ".join(name or "(the model)" for name in names) or "none"),
    )
