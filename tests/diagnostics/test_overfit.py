"""Overfitting one sample: a clean model learns it, and what is in the way is named."""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- as torch's users write it

from diagnostics.models import PAIR, TinyLlama, classify, mlp, sentence
from pytest_remotegpu.diagnostics import SMALL_BATCH, DiagnosisError, Verdict, overfit

TWO = torch.cat([PAIR[0], -PAIR[0]]), torch.tensor([2, 1])
fit = partial(overfit, loss=classify, lr=1e-2)
"""The check with a rate that suits the small classifier."""


def sgd(lr: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda model: torch.optim.SGD(model.parameters(), lr=lr)


def where(verdict: Verdict, code: str) -> tuple[str, ...]:
    """Give the names that a finding concerns."""
    (finding,) = [finding for finding in verdict.findings if finding.code == code]
    return finding.where


# what is clean


@pytest.mark.parametrize("seed", range(10))
def test_a_clean_language_model_passes(seed: int) -> None:
    verdict = overfit(TinyLlama, sentence(seed=seed), seed=seed)
    assert verdict.findings == ()
    assert float(verdict.value("final loss")) < 0.1


@pytest.mark.parametrize("seed", range(10))
def test_a_clean_classifier_passes_with_three_samples(seed: int) -> None:
    batch = torch.randn(3, 8, generator=torch.Generator().manual_seed(seed)), torch.arange(3)
    verdict = fit(mlp, batch, seed=seed, **SMALL_BATCH)
    assert verdict.findings == ()
    assert (verdict.value("steps"), verdict.measured[1].bound) == (50, "")


def test_losses_of_both_ends_are_means_and_all_are_a_curve(tmp_path: Path) -> None:
    verdict = fit(mlp, PAIR).require()
    (losses,) = verdict.curves[0].series.values()
    assert len(losses) == 100
    assert verdict.value("initial loss") == pytest.approx(sum(losses[:5]) / 5)
    assert verdict.value("final loss") == pytest.approx(sum(losses[-5:]) / 5)
    table = next(path for path in verdict.save(tmp_path) if path.name == "overfit-loss.csv")
    assert list(csv.reader(table.read_text(encoding="utf-8").splitlines()))[1:] == [
        [str(step), str(loss)] for step, loss in enumerate(losses)
    ]


def test_ones_own_step_is_used_as_it_is() -> None:
    def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> float:
        for _ in range(2):  # two micro-batches
            (classify(model, batch) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(classify(model, batch).detach())

    verdict = overfit(mlp, PAIR, train_step=train, make_optimizer=sgd(0.5))
    assert verdict.findings == ()


def test_an_optimizer_may_have_no_learning_rate() -> None:
    class Signs(torch.optim.Optimizer):
        def __init__(self, model: nn.Module) -> None:
            super().__init__(model.parameters(), {})

        def step(self, closure: Any = None) -> None:
            assert closure is None
            with torch.no_grad():
                for parameter in self.param_groups[0]["params"]:
                    parameter.sub_(0.01 * parameter.grad.sign())

    assert overfit(mlp, PAIR, loss=classify, make_optimizer=Signs).findings == ()
    slow = overfit(mlp, PAIR, loss=lambda m, b: classify(m, b) + 0.3, make_optimizer=Signs)
    assert slow.codes[0] in ("loss-floor", "does-not-learn")


def test_samples_may_come_in_turn() -> None:
    rows = [(TWO[0][n : n + 1], TWO[1][n : n + 1]) for n in range(2)]
    assert fit(mlp, lambda step: rows[step % 2], steps=200).findings == ()


def test_a_model_may_give_its_loss_in_several_ways() -> None:
    class Giving(nn.Module):
        def __init__(self, give: Callable[[Any], Any]) -> None:
            super().__init__()
            self.inner, self.give = mlp(), give

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return self.give(classify(self.inner, (x, y)))

    def named(loss: Any) -> Any:
        return type("Output", (), {"loss": loss})()

    for give in (lambda loss: loss, lambda loss: (loss, 1), lambda loss: {"loss": loss}, named):
        assert overfit(partial(Giving, give), PAIR, lr=1e-2).passed


# what is planted


class Planted(nn.Module):
    """A classifier with a place for a fault between its layers."""

    def __init__(self, fault: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.fault = nn.Linear(8, 16), nn.Linear(16, 4), fault

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last(self.fault(self.first(x)))
        return logits


def test_frozen_parameters_are_named_though_the_loss_falls() -> None:
    def make() -> nn.Module:
        model = mlp()
        model[0].requires_grad_(False)
        return model

    verdict = fit(make, PAIR)
    assert verdict.codes == ("frozen-parameters",)
    assert where(verdict, "frozen-parameters") == ("0.weight", "0.bias")
    assert float(verdict.value("final loss")) < 0.1
    assert fit(make, PAIR, fixed=["0.*"]).passed


def test_a_model_frozen_as_a_whole_or_empty_is_named() -> None:
    assert fit(lambda: mlp().requires_grad_(False), PAIR, fixed=["*"]).codes == (
        "frozen-parameters",
    )
    verdict = fit(nn.Sequential, PAIR)
    assert "no parameters" in str(verdict)
    assert not verdict


def test_parameters_outside_the_optimizer_are_named() -> None:
    def make(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model[2].parameters(), lr=1e-2)

    verdict = overfit(mlp, PAIR, loss=classify, make_optimizer=make)
    assert verdict.codes == ("not-in-optimizer",)
    assert where(verdict, "not-in-optimizer") == ("0.weight", "0.bias")


def test_parameters_without_a_gradient_are_named() -> None:
    verdict = fit(lambda: Planted(lambda x: x.detach()), PAIR)
    assert verdict.codes == ("missing-gradient",)
    assert where(verdict, "missing-gradient") == ("first.weight", "first.bias")


def test_gradients_of_zero_are_named() -> None:
    verdict = fit(lambda: Planted(lambda x: F.relu(x - 100)), PAIR)
    assert "zero-gradients" in verdict.codes
    assert set(where(verdict, "zero-gradients")) == {"first.weight", "first.bias", "last.weight"}


@pytest.mark.parametrize(
    "detach",
    [
        lambda loss: loss.detach(),
        lambda loss: torch.tensor(loss.item(), requires_grad=True),
        lambda loss: loss.detach().clone().requires_grad_(True),
    ],
)
def test_a_detached_loss_is_named(detach: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert fit(mlp, PAIR, loss=lambda m, b: detach(classify(m, b))).codes == ("detached-loss",)


def test_a_detached_loss_is_named_in_ones_own_step() -> None:
    def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> float:
        with torch.no_grad():
            loss = classify(model, batch)
        loss.backward()
        optimizer.step()
        return float(loss)

    assert overfit(mlp, PAIR, train_step=train).codes == ("detached-loss",)


def own_step(*, step: bool = True, clear: bool = True) -> Callable[[Any, Any, Any], torch.Tensor]:
    def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> torch.Tensor:
        if clear:
            optimizer.zero_grad()
        loss = classify(model, batch)
        loss.backward()
        if step:
            optimizer.step()
        return loss

    return train


def test_an_optimizer_that_never_steps_is_named() -> None:
    assert overfit(mlp, PAIR, train_step=own_step(step=False)).codes == ("optimizer-not-stepped",)


def test_gradients_that_are_never_cleared_are_named() -> None:
    verdict = overfit(mlp, PAIR, train_step=own_step(clear=False), make_optimizer=sgd(0.1))
    assert verdict.codes == ("gradients-not-cleared",)
    assert overfit(mlp, PAIR, train_step=own_step(), make_optimizer=sgd(0.5)).passed


def test_parameters_that_steps_leave_alone_are_named() -> None:
    def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> torch.Tensor:
        loss = classify(model, batch)
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
        return loss

    verdict = overfit(mlp, PAIR, train_step=train)
    assert "unchanged-parameters" in verdict.codes
    assert len(where(verdict, "unchanged-parameters")) == 4


def test_steps_that_bfloat16_rounds_away_are_named() -> None:
    verdict = overfit(lambda: TinyLlama().bfloat16(), sentence())
    assert verdict.codes == ("steps-rounded-away",)
    assert "norm.weight" in where(verdict, "steps-rounded-away")
    assert overfit(lambda: TinyLlama().bfloat16(), sentence(), fixed=["*norm*", "*be*"]).passed


def test_rates_in_the_likelier_direction_are_tried_first() -> None:
    tried = list(overfit(mlp, PAIR, loss=classify, lr=1e-6).curves[0].series)
    assert tried == ["lr 1e-06", "lr 1e-05", "lr 0.0001", "lr 0.001", "lr 0.01"]
    tried = list(overfit(TinyLlama, sentence(), lr=1.0).curves[0].series)
    assert tried[:2] == ["lr 1", "lr 0.1"]


@pytest.mark.parametrize(
    ("lr", "code"),
    [
        (1e-6, "learning-rate-too-low"),
        (0.0, "learning-rate-too-low"),
        (30.0, "learning-rate-too-high"),
    ],
)
def test_a_wrong_learning_rate_is_named_with_one_that_works(lr: float, code: str) -> None:
    verdict = overfit(TinyLlama, sentence(), lr=lr)
    assert verdict.codes[0] == code
    assert "the same run comes down to" in " ".join(str(verdict).split())
    assert len(verdict.curves[0].series) > 1


def test_a_rate_that_ends_in_nan_is_named_first() -> None:
    batch = PAIR[0] * 10, torch.full((1, 4), 5.0)
    verdict = overfit(
        lambda: nn.Linear(8, 4),
        batch,
        loss=lambda m, b: F.mse_loss(m(b[0]), b[1]),
        make_optimizer=sgd(10.0),
        clip=None,
    )
    assert verdict.codes == ("learning-rate-too-high", "not-finite")


def test_what_is_not_finite_is_found_in_a_module() -> None:
    class Log(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x - x).log()

    verdict = fit(lambda: nn.Sequential(nn.Linear(8, 4), Log(), nn.Linear(4, 4)), PAIR)
    assert verdict.codes == ("not-finite",)
    assert where(verdict, "not-finite") == ("1",)
    assert "output of Log is not finite at step 0; its input was finite" in str(verdict)


def test_what_is_not_finite_is_found_in_batch_weights_and_loss() -> None:
    bad = PAIR[0].clone()
    bad[0, 3] = float("inf")
    assert where(fit(mlp, (bad, PAIR[1])), "not-finite") == ("batch[0]",)

    def make() -> nn.Module:
        model = mlp()
        with torch.no_grad():
            model[2].bias[1] = float("nan")
        return model

    assert where(fit(make, PAIR), "not-finite") == ("2.bias",)
    verdict = fit(mlp, PAIR, loss=lambda m, b: (classify(m, b) * 0).log())
    assert where(verdict, "not-finite") == ()
    assert "the loss function itself" in " ".join(str(verdict).split())


def test_what_is_not_finite_is_found_in_a_gradient() -> None:
    verdict = fit(lambda: Planted(lambda x: x * (x * 0).abs().sqrt().add(1)), PAIR)
    assert verdict.codes[0] == "not-finite"
    assert set(where(verdict, "not-finite")) == {"first.weight", "first.bias"}
    assert "gradient is not finite at step 0, while the loss was still finite" in " ".join(
        str(verdict).split()
    )


def test_targets_that_are_shuffled_at_each_step_are_named() -> None:
    batch = torch.randn(8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 4

    def shuffled(model: nn.Module, batch: Any) -> torch.Tensor:
        return classify(model, (batch[0], batch[1][torch.randperm(8)]))

    assert fit(mlp, batch, loss=shuffled).codes == ("shuffled-targets",)
    by_step = fit(mlp, lambda step: (batch[0], batch[1].roll(step)))
    assert by_step.codes == ("shuffled-targets",)


def test_targets_that_contradict_each_other_are_named_with_their_entropy() -> None:
    batch = PAIR[0].repeat(4, 1), torch.tensor([0, 1, 0, 1])
    verdict = fit(mlp, batch)
    assert verdict.codes == ("contradicting-targets",)
    assert "0.6931" in str(verdict)
    assert where(verdict, "contradicting-targets") == tuple(f"sample {n}" for n in range(4))


def test_numbers_that_contradict_each_other_are_named_with_their_deviation() -> None:
    batch = {"x": PAIR[0].repeat(2, 1), "y": torch.tensor([[1.0], [3.0]])}
    verdict = fit(lambda: mlp(classes=1), batch, loss=lambda m, b: F.mse_loss(m(b["x"]), b["y"]))
    assert verdict.codes == ("contradicting-targets",)
    assert "squared deviation, 1 " in " ".join(str(verdict).split())


def test_dropout_that_hides_what_is_learnt_is_named() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.9), nn.Linear(16, 4), nn.Dropout(0.7))

    assert fit(make, PAIR).codes == ("dropout-noise",)


def test_a_loss_that_is_random_in_evaluation_mode_too_is_named() -> None:
    verdict = fit(lambda: Planted(lambda x: x + 30 * torch.randn_like(x)), PAIR)
    assert verdict.codes == ("random-loss",)


def test_a_loss_with_a_floor_is_named() -> None:
    verdict = fit(
        mlp, PAIR, loss=lambda m, b: F.cross_entropy(m(b[0]), b[1], label_smoothing=0.5), steps=300
    )
    assert verdict.codes == ("loss-floor",)


def test_a_backward_with_the_wrong_sign_is_said_not_to_learn() -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(_: Any, *gradients: torch.Tensor) -> torch.Tensor:
            return -gradients[0]

    verdict = fit(lambda: Planted(lambda x: x), PAIR, loss=lambda m, b: Wrong.apply(classify(m, b)))
    assert verdict.codes == ("does-not-learn",)


def test_a_loss_that_bounds_do_not_fit_is_named() -> None:
    assert fit(mlp, PAIR, loss=lambda m, b: classify(m, b) - 9).codes == ("negative-loss",)
    small = fit(mlp, PAIR, loss=lambda m, b: classify(m, b) / 1000 + 0.01)
    assert small.codes == ("nothing-to-learn",)


# what is refused, and what stays


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"steps": 9}, "steps is 9"),
        ({"lr": 1.0, "make_optimizer": sgd(1.0)}, "lr is for the default optimizer"),
        ({"loss": classify, "train_step": own_step()}, "give loss or train_step"),
        ({"loss": lambda m, b: m(b[0])}, r"4 values, shape \(1, 4\)"),
        ({"loss": lambda _m, _b: None}, "the loss is NoneType"),
    ],
)
def test_what_can_not_be_meant_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        overfit(mlp, PAIR, **arguments)


def test_an_optimizer_that_is_not_new_is_refused() -> None:
    model = mlp()
    used = sgd(0.1)(model)
    used.state[model[0].weight]["momentum_buffer"] = None
    with pytest.raises(ValueError, match="has made steps already"):
        overfit(lambda: model, PAIR, loss=classify, make_optimizer=lambda _: used)


def test_ones_own_model_and_random_numbers_are_left_as_they_were() -> None:
    model = nn.Sequential(mlp(), nn.Dropout(0.9))
    before = [parameter.clone() for parameter in model.parameters()]
    numbers = torch.get_rng_state()
    verdict = fit(lambda: model, PAIR, lr=30.0)
    assert not verdict
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert (model[1].p, model.training) == (0.9, True)
    assert torch.equal(numbers, torch.get_rng_state())
    assert not [m for m in model.modules() if m._forward_hooks]  # noqa: SLF001 -- none may stay


def test_an_error_of_ones_own_code_passes_through() -> None:
    def broken(_model: nn.Module, _batch: Any) -> torch.Tensor:
        raise RuntimeError("of the user's")

    with pytest.raises(RuntimeError, match="of the user's"):
        overfit(mlp, PAIR, loss=broken)


def test_the_same_seed_gives_the_same_verdict() -> None:
    texts = {str(fit(mlp, PAIR, seed=5, lr=1e-5)) for _ in range(2)}
    assert len(texts) == 1
    with pytest.raises(DiagnosisError, match="learning-rate-too-low"):
        fit(mlp, PAIR, seed=5, lr=1e-5).require()
