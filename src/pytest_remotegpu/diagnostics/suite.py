"""The checks of the suite, each made with what the user gave; one by one, in their order.

Knows all checks, and what makes a later one pointless; knows no report and no command line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.diagnostics import batches, beginnings, order, peeking, ranked, trials
from pytest_remotegpu.diagnostics.accumulating import accumulation_matches
from pytest_remotegpu.diagnostics.asfound import as_found, seed_all, without_dropout
from pytest_remotegpu.diagnostics.asking import Asked
from pytest_remotegpu.diagnostics.attending import attention_parity
from pytest_remotegpu.diagnostics.compiling import compile_parity
from pytest_remotegpu.diagnostics.faults import (
    NotApplicableError,
    Raised,
    UserCodeError,
    user_code,
)
from pytest_remotegpu.diagnostics.given import Given
from pytest_remotegpu.diagnostics.overfitting import SMALL_BATCH, overfit
from pytest_remotegpu.diagnostics.verdict import Finding, Measure, Verdict

if TYPE_CHECKING:
    import torch

__all__ = ["FAILED", "INTERRUPTED", "NOT_RUN", "PASSED", "RAISED", "Outcome", "nothing", "run"]

PASSED: Final = "passed"
FAILED: Final = "failed"
RAISED: Final = "raised"
NOT_RUN: Final = "not run"
INTERRUPTED: Final = "interrupted"

FEW: Final = 3
"""Samples of the small batch, as :data:`SMALL_BATCH` has its bound for."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one check.

    :ivar state: one of this module's words. :ivar because: why it was not run.
    :ivar chosen: whether that was the user's choice.
    """

    step: order.Step
    state: str
    because: str = ""
    seconds: float = 0.0
    verdict: Verdict | None = None
    error: Raised | None = None
    chosen: bool = False


def run(asked: Asked, given: Given) -> Iterator[Outcome]:
    """Make the checks that are wanted; the rest comes as well, with the reason why it is not run.

    After Ctrl-C the check that ran is interrupted, and no other one is begun.

    :raises NotMeantError: where a check needs what was not given.
    """
    subject = _Subject(asked, given)
    bad: dict[str, str] = {}
    stopped = False
    for step in order.STEPS:
        because = asked.wants(step)
        why = _pointless(step, bad) if not because else ""
        if stopped and not because:
            yield Outcome(step, NOT_RUN, "the suite was interrupted")
            continue
        if because or why:
            yield Outcome(step, NOT_RUN, because or why, chosen=bool(because))
            continue
        began = time.monotonic()
        outcome = _made(step, subject)
        stopped = outcome.state == INTERRUPTED
        if outcome.state in (FAILED, RAISED):
            bad[step.name] = _short(outcome)
        yield replace(outcome, seconds=time.monotonic() - began)


def nothing(asked: Asked, error: Raised) -> Iterator[Outcome]:
    """Give what comes of a suite whose model or batch could not even be made."""
    yield Outcome(order.MODEL, RAISED, error=error)
    for step in order.STEPS:
        because = asked.wants(step)
        why = because or f"{order.MODEL.name} raised {error.kind}"
        yield Outcome(step, NOT_RUN, why, chosen=bool(because))


def _pointless(step: order.Step, bad: Mapping[str, str]) -> str:
    return next((f"{name} {bad[name]}" for name in step.needs if name in bad), "")


def _short(outcome: Outcome) -> str:
    if outcome.verdict is None:
        return f"raised {outcome.error.kind}" if outcome.error else "raised"
    codes = [finding.code for finding in outcome.verdict.findings if finding.fails]
    return f"failed: {', '.join(codes)}"


def _made(step: order.Step, subject: _Subject) -> Outcome:
    try:
        with user_code():
            verdict = CHECKS[step.name](subject)
    except NotApplicableError as error:
        return Outcome(step, NOT_RUN, str(error))
    except UserCodeError as error:
        return Outcome(step, RAISED, error=error.raised)
    except KeyboardInterrupt:
        return Outcome(step, INTERRUPTED, "interrupted while it ran")
    return Outcome(step, PASSED if verdict else FAILED, verdict=_renamed(verdict, step.name))


def _renamed(verdict: Verdict, name: str) -> Verdict:
    """Give a verdict the name of its place in the suite, and its curves names of their own."""
    if verdict.name == name:
        return verdict
    curves = [replace(c, name=c.name.replace(verdict.name, name, 1)) for c in verdict.curves]
    return replace(verdict, name=name, curves=tuple(curves))


@dataclass
class _Subject:
    """What is checked, and what several checks ask of it.

    :ivar batch: the one that all checks use.
    """

    asked: Asked
    given: Given
    batch: Any = field(init=False)

    def __post_init__(self) -> None:
        self.batch = self.given.first(self.asked.seed)

    @cached_property
    def seen(self) -> peeking.Seen:
        """What a forward pass with the loss computes."""
        return self.given.seen(self.batch, self.asked.seed)

    def count(self, batch: Any) -> int:
        """Count what the loss of a batch is the mean over."""
        return self.given.counted(batch, self.asked.seed)

    @property
    def recipe(self) -> trials.Recipe:
        """How it is trained."""
        import torch  # noqa: PLC0415 -- late

        def adamw(model: torch.nn.Module) -> Any:
            return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])

        return trials.Recipe(
            make_model=self.given.make_model,
            batch=lambda _: self.batch,
            loss=self.given.loss,
            train_step=self.given.train_step,
            make_optimizer=self.given.make_optimizer or adamw,
            clip=None,
            steps=1,
            seed=self.asked.seed,
        )


def _batch(subject: _Subject) -> Verdict:
    fit = not beginnings.unfit(subject.batch)
    again = subject.given.first(subject.asked.seed + 1)
    return beginnings.batch_sound(subject.batch, again, subject.seen if fit else None)


def _first_step(subject: _Subject) -> Verdict:
    return beginnings.first_step(subject.recipe)


def _initial_loss(subject: _Subject) -> Verdict:
    entropies = [each for each in subject.seen.entropies if each.targets]
    if not entropies:
        raise NotApplicableError(
            "the loss calls no cross_entropy of torch with classes, so that nobody knows where it "
            "should begin"
        )
    return beginnings.begins_at_chance(entropies, lambda: trials.number(subject.seen.value))


def _overfit(subject: _Subject, batch: Any, **goal: Any) -> Verdict:
    given = subject.given
    own = {"loss": given.loss} if given.train_step is None else {"train_step": given.train_step}
    verdict = overfit(
        given.make_model,
        batch,
        make_optimizer=given.make_optimizer,
        fixed=subject.asked.fixed,
        seed=subject.asked.seed,
        **own,
        **goal,
    )
    findings = [  # the advice is for whoever has a command line
        replace(each, next_step=each.next_step.replace("fixed=[...]", "--fixed=PATTERN"))
        for each in verdict.findings
    ]
    return replace(verdict, findings=tuple(findings))


def _overfit_sample(subject: _Subject) -> Verdict:
    try:
        return _overfit(subject, batches.part(subject.batch, 0, 1))
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise NotApplicableError("BatchNorm has no variance of a single sample") from error


def _overfit_batch(subject: _Subject) -> Verdict:
    if batches.rows(subject.batch) < 2:  # noqa: PLR2004 -- one is no batch
        raise NotApplicableError("the batch has one row only; three are enough for it")
    return _overfit(subject, batches.part(subject.batch, 0, FEW), **SMALL_BATCH)


def _accumulation(subject: _Subject) -> Verdict:
    given, rows = subject.given, batches.rows(subject.batch)
    if rows < FEW:
        raise NotApplicableError(
            "the batch has fewer than three rows, which can be cut into micro-batches of different "
            "sizes"
        )
    if any(entropy.reduction == "sum" for entropy in subject.seen.entropies):
        raise NotApplicableError("the loss is a sum, which has no weights to get wrong")
    first = rows - rows // FEW
    micro = [batches.part(subject.batch, 0, first), batches.part(subject.batch, first, rows)]
    verdict = accumulation_matches(
        given.make_model,
        micro,
        accumulate=given.accumulate or _weighted(subject, micro),
        loss=given.loss,
        count=subject.count,
        join=lambda _: subject.batch,
        seed=subject.asked.seed,
    )
    return verdict if given.accumulate is not None else _without_loop(verdict, subject)


def _without_loop(verdict: Verdict, subject: _Subject) -> Verdict:
    """Judge what a loop of ours says: whether samples depend on each other, and no more.

    With BatchNorm they are meant to, so that it is a note there.
    """
    from torch import nn  # noqa: PLC0415 -- late

    kinds = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm
    with as_found(subject.asked.seed):
        meant = any(isinstance(m, kinds) for m in subject.given.make_model().modules())
    note = Finding(
        "no-loop",
        "no loop of yours is given, so this says whether the samples of a batch depend on each "
        "other, not whether your loop weights them right",
        "write accumulate(model, micro_batches) beside the factory, or name it by --accumulate",
        fails=False,
    )
    kept = [
        replace(finding, fails=finding.fails and not meant)
        for finding in verdict.findings
        if finding.code == "batch-dependent"
    ]
    return replace(verdict, findings=(*kept, note))


def _weighted(subject: _Subject, micro: Sequence[Any]) -> Callable[[Any, Any], None]:
    counts = [subject.count(part) for part in micro]

    def accumulate(model: torch.nn.Module, parts: Sequence[Any]) -> None:
        for part, count in zip(parts, counts, strict=True):
            (subject.given.loss(model, part) * (count / sum(counts))).backward()

    return accumulate


def _attention(subject: _Subject) -> Verdict:
    calls = subject.seen.calls
    if not calls:
        raise NotApplicableError("the model does not call scaled_dot_product_attention")
    verdicts = {}
    for call in calls:
        shape = " x ".join(map(str, call.query.shape))
        try:
            verdicts[f"{shape} by {call.key.shape[-2]}"] = attention_parity(
                call.query,
                call.key,
                call.value,
                mask=call.mask,
                causal=call.causal,
                scale=call.scale,
                seed=subject.asked.seed,
            )
        except ValueError as error:
            raise NotApplicableError(str(error)) from error
    if len(verdicts) == 1:
        return next(iter(verdicts.values()))
    return _together("attention_parity", verdicts)


def _together(name: str, verdicts: Mapping[str, Verdict]) -> Verdict:
    """Make one verdict of several."""
    measured = [
        Measure(f"{m.name}, {word}", m.value, m.unit, m.bound)
        for word, verdict in verdicts.items()
        for m in verdict.measured
    ]
    findings = [
        replace(finding, what=f"{word}: {finding.what}")
        for word, verdict in verdicts.items()
        for finding in verdict.findings
    ]
    return Verdict(name, tuple(measured), tuple(findings))


def _compile(subject: _Subject) -> Verdict:
    import torch  # noqa: PLC0415 -- late

    loss = subject.given.loss

    class Whole(torch.nn.Module):
        """The model with its loss, as one function of a batch."""

        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, batch: Any) -> Any:
            return loss(self.model, batch)

    with as_found(subject.asked.seed):
        seed_all(subject.asked.seed)
        whole = Whole(subject.given.make_model())
        with without_dropout(whole):
            return compile_parity(
                whole, subject.batch, backend=subject.asked.backend, seed=subject.asked.seed
            )


def _in_ranks(name: str) -> Callable[[_Subject], Verdict]:
    def check(subject: _Subject) -> Verdict:
        if batches.rows(subject.batch) < subject.asked.ranks:
            raise NotApplicableError(
                f"the batch has {batches.rows(subject.batch)} rows, fewer than there are ranks"
            )
        return ranked.run(name, subject.asked)

    return check


CHECKS: Final[Mapping[str, Callable[[_Subject], Verdict]]] = {
    "batch": _batch,
    "first_step": _first_step,
    "initial_loss": _initial_loss,
    "overfit_sample": _overfit_sample,
    "overfit_batch": _overfit_batch,
    "accumulation_matches": _accumulation,
    "attention_parity": _attention,
    "compile_parity": _compile,
    **{step.name: _in_ranks(step.name) for step in order.STEPS if step.option == "--ranks"},
}
