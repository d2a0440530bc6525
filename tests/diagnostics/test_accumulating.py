"""Accumulated gradients against those of one large batch, with each wrong weighting planted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from diagnostics.models import TinyLlama, classify, mlp, sentence
from pytest_remotegpu.diagnostics import Verdict, accumulation_matches

Batch = tuple[torch.Tensor, torch.Tensor]
Loop = Callable[[nn.Module, Sequence[Batch]], None]


def parts(*sizes: int, seed: int = 0) -> list[Batch]:
    numbers = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(n, 8, generator=numbers), torch.randint(0, 4, (n,), generator=numbers))
        for n in sizes
    ]


def count(batch: Batch) -> int:
    return len(batch[1])


def loop(weight: Callable[[int, int, int], float], *, clear: bool = False) -> Loop:
    """Make a loop whose losses are weighted by (tokens of one, tokens of all, micro-batches)."""

    def accumulate(model: nn.Module, batches: Sequence[Batch]) -> None:
        total = sum(map(count, batches))
        for batch in batches:
            if clear:
                model.zero_grad()
            (classify(model, batch) * weight(count(batch), total, len(batches))).backward()

    return accumulate


right = loop(lambda one, total, _: one / total)


def check(accumulate: Loop, *sizes: int, **arguments: Any) -> Verdict:
    make = arguments.pop("make", mlp)
    return accumulation_matches(
        make,
        parts(*(sizes or (5, 2, 3))),
        accumulate=accumulate,
        loss=classify,
        count=count,
        **arguments,
    )


@pytest.mark.parametrize("seed", range(10))
def test_a_token_weighted_loop_passes(seed: int) -> None:
    verdict = accumulation_matches(
        mlp, parts(5, 2, 3, seed=seed), accumulate=right, loss=classify, count=count, seed=seed
    )
    assert verdict.findings == ()
    assert float(verdict.value("largest difference")) < 1e-5


@pytest.mark.parametrize("seed", range(3))
def test_a_language_model_with_ignored_tokens_passes(seed: int) -> None:
    batches = [sentence(2, seed=seed), sentence(2, seed=seed + 50)]
    batches[1]["labels"][:, 5:] = -100

    def tokens(batch: dict[str, torch.Tensor]) -> int:
        return int((batch["labels"][:, 1:] != -100).sum())

    def accumulate(model: nn.Module, batches: Sequence[dict[str, torch.Tensor]]) -> None:
        total = sum(map(tokens, batches))
        for batch in batches:
            (model(**batch)["loss"] * tokens(batch) / total).backward()

    assert accumulation_matches(TinyLlama, batches, accumulate=accumulate, count=tokens).passed

    def unweighted(model: nn.Module, batches: Sequence[dict[str, torch.Tensor]]) -> None:
        for batch in batches:
            (model(**batch)["loss"] / len(batches)).backward()

    verdict = accumulation_matches(TinyLlama, batches, accumulate=unweighted, count=tokens)
    assert verdict.codes == ("mean-of-means",)


@pytest.mark.parametrize(
    ("accumulate", "code"),
    [
        (loop(lambda _, __, ___: 1.0), "not-divided"),
        (loop(lambda one, total, n: n * one / total), "not-divided"),
        (loop(lambda _, __, n: 1 / n), "mean-of-means"),
        (loop(lambda one, total, n: one / total / n), "divided-twice"),
        (loop(lambda _, __, n: 1 / n / n), "divided-twice"),
        (loop(lambda one, total, _: one / total, clear=True), "only-last"),
        (loop(lambda _, __, ___: 1.0, clear=True), "only-last"),
        (lambda model, batches: right(model, batches[:1]), "only-first"),
        (lambda model, batches: right(model, batches[:2]), "gradient-differs"),
        (lambda _model, _batches: None, "gradient-differs"),
    ],
)
def test_a_wrong_weighting_is_named(accumulate: Loop, code: str) -> None:
    assert check(accumulate).codes == (code,)


def test_one_wrong_parameter_is_named() -> None:
    def accumulate(model: nn.Module, batches: Sequence[Batch]) -> None:
        right(model, batches)
        model[0].bias.grad *= 3

    verdict = check(accumulate)
    assert [(f.code, f.where) for f in verdict.findings] == [("not-divided", ("0.bias",))]


def test_equal_micro_batches_are_noted() -> None:
    verdict = check(loop(lambda _, __, n: 1 / n), 3, 3)
    assert (verdict.passed, verdict.codes) == (True, ("equal-counts",))


def test_a_layer_across_samples_is_named() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))

    assert "batch-dependent" in check(right, make=make).codes


def test_it_is_done_in_float32_without_dropout_and_leaves_the_model_alone() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 4)).bfloat16()
    model.register_buffer("extra", torch.ones(2, dtype=torch.bfloat16))
    data = [(p, p.data_ptr(), p.detach().clone()) for p in model.parameters()]
    batches = [(x.bfloat16(), y) for x, y in parts(5, 2, 3)]
    seen = set()

    def accumulate(given: nn.Module, batches: Sequence[Batch]) -> None:
        seen.update([batches[0][0].dtype, given[0].weight.dtype])
        right(given, batches)

    verdict = accumulation_matches(
        lambda: model, batches, accumulate=accumulate, loss=classify, count=count
    )
    assert verdict.passed
    assert seen == {torch.float32}
    assert model[1].p == 0.5
    assert model.extra.dtype == torch.bfloat16
    for parameter, pointer, values in data:
        assert (parameter.data_ptr(), parameter.dtype) == (pointer, torch.bfloat16)
        assert torch.equal(parameter, values)
        assert parameter.grad is None


@pytest.mark.parametrize("sizes", [(3,), (3, 0)])
def test_what_is_no_accumulation_is_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="two at least are needed"):
        check(right, *sizes)


def test_batches_that_do_not_join_are_refused() -> None:
    batches = [(torch.randn(2, 8), torch.arange(2)), (torch.randn(2, 9), torch.arange(2))]
    with pytest.raises(ValueError, match=r"put below each other.*give join="):
        accumulation_matches(mlp, batches, accumulate=right, loss=classify, count=count)
