"""A sharded model and the plain one beside it: both are trained alike, and compared.

Knows the order of things and what explains what; the check above it knows the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.diagnostics import (
    batches,
    exchanges,
    gradients,
    meeting,
    paired,
    resuming,
    shards,
    steps,
    trials,
)
from pytest_remotegpu.diagnostics.asfound import as_found, model_as_found, seed_all, without_dropout
from pytest_remotegpu.diagnostics.curves import Curve
from pytest_remotegpu.diagnostics.making import model_of, optimizer_of
from pytest_remotegpu.diagnostics.verdict import Finding, Measure, Verdict

if TYPE_CHECKING:
    import torch

__all__ = ["Check", "Data", "Recipe", "Shard", "adamw"]

Shard = Callable[["torch.nn.Module"], Any]
"""Shards a model in place, gives another, or a pair of a model and its optimizer."""
EXPLAINING: Final = frozenset(
    {
        "different-weights",
        "tied-weights-broken",
        "stale-optimizer",
        "not-in-optimizer",
        "not-sharded",
        "dtype-leak",
        "different-buffers",
        "random-loss",
        "not-finite",
        "missing-gradient",
        *exchanges.WORDS,
    }
)
"""What makes losses and parameters differ by itself: the difference says nothing more then."""
STILL: Final = 1e-4
"""Part of a loss by which it may differ when it is computed again, far above what rounding does."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to train; :func:`fsdp_matches` explains each."""

    make_model: Callable[[], torch.nn.Module]
    make_optimizer: Callable[[torch.nn.Module], torch.optim.Optimizer]
    shard: Shard
    loss: Callable[[torch.nn.Module, Any], torch.Tensor]
    whole: Callable[[torch.nn.Module, Any], torch.Tensor]
    join: Callable[[list[Any]], Any]
    ways: tuple[resuming.Way, ...]
    unsharded: Sequence[str]
    short: Sequence[str]
    clip: float | None
    slack: float
    group: Any
    seed: int | None


@dataclass(frozen=True, slots=True)
class Data:
    """Of each step: this rank's batch, that of all, and the same with the ranks turned round."""

    own: list[Any]
    joined: list[Any]
    turned: list[Any]
    everyones: list[Any]
    twins: tuple[str, ...] = ()
    changes: bool = False


def adamw(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Make the optimizer that is used where none is given."""
    import torch  # noqa: PLC0415 -- late

    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(trained, lr=1e-3)
    return optimizer


class Check:
    """One check, on one rank: what it has made and found so far."""

    def __init__(self, recipe: Recipe, data: Data, stack: ExitStack) -> None:
        self.recipe, self.data, self.stack = recipe, data, stack
        self.steps = steps.Steps(recipe.loss, recipe.clip)
        self.half = len(data.own) // 2
        self.models: list[torch.nn.Module] = []
        self.findings: list[Finding] = []
        self.measured: list[Measure] = []
        self.curves: tuple[Curve, ...] = ()

    def verdict(self) -> Verdict:
        """Run all, and judge."""
        self._run()
        self._agree()
        return Verdict("fsdp_matches", tuple(self.measured), tuple(self.findings), self.curves)

    def _agree(self) -> None:
        """Let all ranks have what each has found: what comes next is the same on all."""
        merged: dict[tuple[str, str], Finding] = {}
        for each in meeting.gather(self.findings, self.recipe.group):
            for finding in each:
                known = merged.setdefault((finding.code, finding.next_step), finding)
                where = tuple(dict.fromkeys((*known.where, *finding.where)))
                merged[finding.code, finding.next_step] = replace(known, where=where)
        self.findings = [*merged.values()]

    def _add(self, *findings: Finding | None) -> None:
        self.findings += [finding for finding in findings if finding is not None]

    def _has(self, *codes: str) -> bool:
        return any(finding.code in codes for finding in self.findings)

    def _run(self) -> None:
        group = self.recipe.group
        plain, twin = meeting.together(lambda: (self._plain(), self._plain()), group)
        self._add(exchanges.twins(self.data.twins) if self.data.twins else None)
        self._add(meeting.together(lambda: self._random(plain), group))
        ties, names = (
            shards.ties(plain),
            {gradients.plain_name(n) for n, _ in plain.named_parameters()},
        )
        made = {n: batches.digest(t) for n, t in _tensors(plain).items()}
        model, optimizer = meeting.together(lambda: self._sharded(self.recipe.seed), group)
        self._add(shards.untied(model, ties))
        self._agree()
        if self._has("random-loss", "tied-weights-broken"):  # nothing can be compared with these
            return
        meeting.together(lambda: _same_names(model, names), group)
        start = shards.parameters(model)
        self._look(model, optimizer, made, start)
        every = [*plain.state_dict(), *(n for n, _ in plain.named_parameters())]
        keys = [*dict.fromkeys(map(gradients.plain_name, every))]
        for each in (plain, twin):
            _filled(each, start)
        self._compare(model, optimizer, (plain, twin), start, keys)

    def _plain(self) -> torch.nn.Module:
        """Make a plain model, in float32 at least."""
        with self._seeded(self.recipe.seed):
            model = self._new(model_of(self.recipe.make_model))
        low = {t.dtype for t in _tensors(model).values() if shards.is_low(t)}
        return model.float() if low else model

    def _new(self, model: torch.nn.Module) -> torch.nn.Module:
        """Look whether the factory gives what can be used, and switch its dropout off."""
        tensors = _tensors(model)
        if not any(True for _ in model.parameters()) or any(t.is_meta for t in tensors.values()):
            raise ValueError(
                "make_model gave a model without parameters, or with some on the meta device; it "
                "has to give one whose parameters have values"
            )
        known = {id(p) for other in self.models for p in other.parameters()}
        if known & {id(p) for p in model.parameters()}:
            raise ValueError("make_model gave the same parameters twice; it has to make new ones")
        self.models.append(model)
        self.stack.enter_context(without_dropout(model))
        return model

    def _seeded(self, seed: int | None) -> AbstractContextManager[None]:
        if seed is None:
            return as_found()
        seed_all(seed)
        return nullcontext()

    def _sharded(self, seed: int | None) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        with self._seeded(seed):
            model = self._new(model_of(self.recipe.make_model))
            made = self.recipe.shard(model)
            if isinstance(made, tuple):
                if self.recipe.make_optimizer is adamw:
                    raise ValueError(
                        "shard gave an optimizer; give make_optimizer= too, for the plain model"
                    )
                return made
            model = model if made is None else made
            return model, optimizer_of(self.recipe.make_optimizer, model)

    def _random(self, plain: torch.nn.Module) -> Finding | None:
        """Compute losses of the plain model: whether they can be, and whether they stand still."""
        import torch  # noqa: PLC0415 -- late

        with as_found(), torch.no_grad(), model_as_found(plain):
            self.recipe.loss(plain, self.data.own[0])
            losses = []
            for seed in (0, 1):
                seed_all(seed)
                losses.append(trials.number(self.recipe.whole(plain, self.data.joined[0])))
        one, other = losses
        if not abs(one - other) > STILL * abs(one):
            return None
        return Finding(
            "random-loss",
            f"the same weights and batch give other losses: {one:.6g} and {other:.6g}",
            "switch off what is random besides nn.Dropout: functional dropout, noise, sampling; "
            "then sharded and unsharded can be compared",
        )

    def _look(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        made: dict[str, str],
        start: dict[str, torch.Tensor],
    ) -> None:
        """Look at the sharded model before it is trained."""
        group = self.recipe.group
        everyones = meeting.gather(made, group)
        differing = [n for n in made if len({other.get(n) for other in everyones}) > 1]
        mine = all(batches.digest(start[n]) == made[n] for n in differing if n in start)
        if not any(meeting.gather(mine, group)):  # else one rank's are everybody's
            self._add(exchanges.strangers(tuple(n for n in differing if n in start)))
        self._buffers(model, "before training begins")
        self._add(shards.left_out(model, self.recipe.unsharded))
        self._add(*shards.optimizer_lacks(model, optimizer))
        self._agree()
        spread = sum(hasattr(p, "placements") for p in model.parameters())
        self.measured += [
            Measure("ranks", len(everyones)),
            Measure("parameters", len(start)),
            Measure("parameters that are sharded", spread),
        ]

    def _buffers(self, model: torch.nn.Module, when: str) -> None:
        mine = {gradients.plain_name(n): batches.digest(b) for n, b in model.named_buffers()}
        everyones = meeting.gather(mine, self.recipe.group)
        names = tuple(n for n in mine if len({other.get(n) for other in everyones}) > 1)
        if names and not self._has("different-buffers"):
            self._add(
                Finding(
                    "different-buffers",
                    f"{len(names)} buffers have other values on some ranks {when}: fully_shard "
                    "neither shards nor exchanges them",
                    "make them alike on all ranks (seed, broadcast); for running statistics take "
                    "SyncBatchNorm, or a norm without them",
                    names,
                )
            )

    def _compare(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        others: tuple[torch.nn.Module, torch.nn.Module],
        start: dict[str, torch.Tensor],
        keys: list[str],
    ) -> None:
        """Train the sharded model and the plain one, and compare; then resume."""
        recipe, data = self.recipe, self.data
        mixed = self._has("not-sharded") and any(
            hasattr(p, "placements") for p in model.parameters()
        )
        # shards and whole tensors in one step are more than most optimizers take
        parts = data.own[:1] if mixed else data.own[: self.half]
        spread = self._distorted(others[0])
        head = steps.train(self.steps, model, optimizer, parts, first=True, step=not mixed)
        self._add(shards.short(model, optimizer, recipe.short))
        dtype = paired.lowest(head.dtypes)
        goes_on = not (mixed or self._has("stale-optimizer", "not-in-optimizer"))
        kept = self._kept(model, optimizer, keys) if goes_on else []
        rest = [] if mixed else data.own[self.half :]
        low = dtype in paired.LOW
        tail = steps.train(self.steps, model, optimizer, rest, trace=low, last=True)
        self._add(shards.reduced_low(tail.operations, len(data.everyones)))
        self._buffers(model, f"after {len(parts) + len(rest)} steps")
        run = replace(tail, losses=head.losses + tail.losses, gradients=head.gradients)
        self._meet(run)
        tail.losses = run.losses[len(head.losses) :]
        right, turned = self._unsharded(others, len(run.losses), dtype, step=not mixed)
        given = paired.bounds(dtype, recipe.slack)
        result = paired.compare(run, right, turned, start, given)
        self._gradients(run, right, spread, result.bounds.gradient)
        if not all(math.isfinite(loss) for loss in run.losses):
            self._add(paired.not_finite(run, right))
        explained = self._has(*EXPLAINING)
        for way, state, saved in kept:
            self._resume(way, state, saved, tail, start, result.bounds)
        if not explained:
            self._add(*result.findings)
            if not data.changes:
                self._add(paired.rests(run, right, start))
        self.measured += _measured(dtype, result, run, [way.name for way, _, _ in kept])
        series = {"sharded": tuple(run.losses), "unsharded": tuple(right.losses)}
        self.curves = (Curve("fsdp-loss", series),)

    def _distorted(self, plain: torch.nn.Module) -> list[gradients.Gradients]:
        """Give the plain model's gradients of this rank's batch, and their mean over the ranks'."""

        def back(batch: Any) -> None:
            self.recipe.whole(plain, batch).backward()

        with model_as_found(plain):
            own = gradients.of(plain, partial(back, self.data.own[0]))
            mean: gradients.Gradients = {}
            for other in self.data.everyones:
                one = gradients.of(plain, partial(back, other))
                mean = gradients.added(mean, 1 / len(self.data.everyones), one)
        return [own, mean]

    def _unsharded(
        self,
        models: tuple[torch.nn.Module, torch.nn.Module],
        number: int,
        dtype: str,
        *,
        step: bool,
    ) -> list[steps.Run]:
        """Train the plain model, and once more with the ranks' batches in another order."""
        import torch  # noqa: PLC0415 -- late

        alone = steps.Steps(self.recipe.whole, self.recipe.clip)
        device = next(models[0].parameters()).device.type
        low = dtype in paired.LOW
        autocast: AbstractContextManager[Any] = nullcontext()
        if low:  # its cache would keep what weights were before a step
            autocast = torch.autocast(device, getattr(torch, dtype), cache_enabled=False)
        runs = []
        for model, parts, context in (
            (models[0], self.data.joined, nullcontext()),
            (models[1], self.data.turned, autocast),
        ):
            optimizer = optimizer_of(self.recipe.make_optimizer, model)
            with context:
                made = partial(steps.train, alone, model, optimizer, parts[:number])
                runs.append(made(first=True, last=True, step=step))
        return runs

    def _meet(self, run: steps.Run) -> None:
        """Take the mean of the ranks' losses."""
        everyones = meeting.gather(run.losses, self.recipe.group)
        run.losses = [fmean(losses) for losses in zip(*everyones, strict=True)]

    def _gradients(
        self, run: steps.Run, right: steps.Run, spread: list[gradients.Gradients], rtol: float
    ) -> None:
        """Judge the gradients of the first step."""
        own, mean = spread
        mine, joined = run.gradients, right.gradients
        empty = [n for n in mine if not bool(mine[n].any()) and bool(joined[n].any())]
        candidates = exchanges.candidates(mine, joined, own, mean, len(self.data.everyones))
        fits = gradients.explained(mine, candidates, rtol)
        fits |= dict.fromkeys(empty, exchanges.RIGHT)
        self._add(*exchanges.findings(meeting.gather(fits, self.recipe.group)))
        if empty:
            self._add(
                Finding(
                    "missing-gradient",
                    f"no gradient has come to {len(empty)} parameters, and some to the unsharded "
                    "model's",
                    "see set_requires_gradient_sync(False), a detach(), and whether the sharded "
                    "model itself is called, through its forward()",
                    tuple(empty),
                )
            )

    def _kept(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, keys: list[str]
    ) -> list[tuple[resuming.Way, Any, resuming.Saved]]:
        """Save in each way, and note what there was to save."""
        found = []
        for way in self.recipe.ways:
            state = self._tried(way, partial(way.save, model, optimizer))
            if state is None and not way.own:
                continue
            if way.own:  # what is kept must not change when training goes on
                state = batches.mapped(state, lambda tensor: tensor.detach().clone())
            gone = resuming.dropped(way, state, keys)
            self._add(gone)
            if not any(meeting.gather(gone is not None, self.recipe.group)):
                found.append((way, state, resuming.taken(model, optimizer)))
        return found

    def _tried(self, way: resuming.Way, run: Callable[[], Any]) -> Any:
        """Save or load; what torch refuses is a finding, what the user's code raises is not."""
        if way.own:
            return meeting.together(run, self.recipe.group)
        said, result = "", None
        try:
            result = run()
        except (RuntimeError, ValueError, KeyError, AssertionError, TypeError) as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
        refusals = [text for text in meeting.gather(said, self.recipe.group) if text]
        if refusals:
            self._add(resuming.not_loaded(way, refusals[0]))
            return None
        return True if result is None else result

    def _resume(
        self,
        way: resuming.Way,
        state: Any,
        saved: resuming.Saved,
        tail: steps.Run,
        start: dict[str, torch.Tensor],
        held: paired.Bounds,
    ) -> None:
        """Load into a new model, which begins with other weights, and go on."""
        group, seed = self.recipe.group, self.recipe.seed
        other = None if seed is None else seed + 1
        model, optimizer = meeting.together(lambda: self._sharded(other), group)
        done = self._tried(way, partial(way.load, model, optimizer, state))
        if done is None and not way.own:
            return
        wrong = resuming.went_wrong(way, saved, resuming.taken(model, optimizer), group)
        self._add(*wrong)
        if wrong:
            return
        run = steps.train(self.steps, model, optimizer, self.data.own[self.half :], last=True)
        self._meet(run)
        who = f"the resumed ranks ({way.name})"
        result = paired.compare(run, tail, tail, start, held, who=who, code="resumed-run-differs")
        self._add(*result.findings)


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Give parameters and buffers by name."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {gradients.plain_name(name): tensor.detach() for name, tensor in named.items()}


def _same_names(model: torch.nn.Module, names: set[str]) -> None:
    """Look whether a sharded model has the plain one's parameters.

    :raises ValueError: where it has others.
    """
    own = {gradients.plain_name(name) for name, _ in model.named_parameters()}
    if own != names:
        raise ValueError(
            f"the sharded model has other parameters: {sorted(own ^ names)}; "
            "shard= has to give the model of make_model"
        )


def _filled(model: torch.nn.Module, values: dict[str, torch.Tensor]) -> None:
    """Give a plain model the sharded one's values."""
    for name, parameter in model.named_parameters():
        parameter.data.copy_(values[gradients.plain_name(name)])


def _measured(
    dtype: str, result: paired.Comparison, run: steps.Run, ways: list[str]
) -> list[Measure]:
    held = result.bounds
    return [
        Measure("computed in", dtype),
        Measure("first loss", run.losses[0]),
        Measure("last loss", run.losses[-1]),
        Measure("largest difference of a loss", result.loss, bound=f"<= {held.loss:.3g} x loss"),
        Measure(
            "largest difference of a gradient",
            result.gradient,
            bound=f"<= {held.gradient:.3g} x norm",
        ),
        Measure(
            "largest difference of a parameter",
            result.moved,
            bound=f"<= {held.moved:.3g} x its way",
        ),
        Measure("resumed from", ", ".join(ways) or "nothing"),
    ]
