"""Batches of any form: their tensors, joined ones, and rows that contradict each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.diagnostics import batches, gradients

X = torch.arange(6.0).reshape(3, 2)
Y = torch.tensor([0, 1, 2])
FORMS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "pair": lambda x, y: (x, y),
    "list": lambda x, y: [x, y],
    "mapping": lambda x, y: {"x": x, "labels": y},
    "nested": lambda x, y: ({"a": x, "b": [x * 2]}, y),
}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@forms
def test_parts_are_joined_in_their_form(form: Callable[..., Any]) -> None:
    joined = batches.joined([form(X[:1], Y[:1]), form(X[1:], Y[1:])])
    expected = form(X, Y)
    assert [name for name, _ in batches.tensors(joined)] == [
        name for name, _ in batches.tensors(expected)
    ]
    assert batches.digest(joined) == batches.digest(expected)


def test_what_is_no_tensor_is_taken_from_the_first() -> None:
    assert batches.joined([{"x": X, "name": "a"}, {"x": X, "name": "b"}])["name"] == "a"


@pytest.mark.parametrize(
    "parts", [[X, X[:, :1]], [X, X[0]], [torch.tensor(1.0), torch.tensor(2.0)], [(X, Y), (X,)]]
)
def test_what_does_not_fit_is_refused(parts: list[Any]) -> None:
    with pytest.raises(ValueError, match="can't be put below each other"):
        batches.joined(parts)


numbers = st.lists(st.sampled_from([0.0, 1.0, -0.0, 2.5]), min_size=1, max_size=4)


@given(numbers, numbers, st.sampled_from([torch.float32, torch.bfloat16, torch.int64]))
def test_digests_agree_where_bytes_do(one: list[float], two: list[float], dtype: Any) -> None:
    a, b = torch.tensor(one).to(dtype), torch.tensor(two).to(dtype)
    same = a.shape == b.shape and a.tolist() == b.tolist() and str(a.tolist()) == str(b.tolist())
    assert (batches.digest(a) == batches.digest(b)) is same
    assert batches.digest(a) == batches.digest(torch.stack([a, a], 1)[:, 0])  # not contiguous
    assert batches.digest(a) != batches.digest(a[None])


@forms
def test_a_clean_batch_has_no_contradiction(form: Callable[..., Any]) -> None:
    assert batches.contradiction(form(X, Y)) is None
    assert batches.contradiction(form(X[[0, 0]], Y[[1, 1]])) is None


@forms
def test_contradicting_rows_are_found_in_any_form(form: Callable[..., Any]) -> None:
    found = batches.contradiction(form(X[[0, 1, 0, 0]], torch.tensor([0, 2, 1, 1])))
    assert found is not None
    assert (found.rows, found.classes) == ((0, 2, 3), True)
    entropy = -(math.log(1 / 3) + 2 * math.log(2 / 3)) / 4
    assert found.floor == pytest.approx(entropy)


def test_ignored_targets_do_not_count() -> None:
    found = batches.contradiction((X[[0, 0]], torch.tensor([[0, -100], [1, 3]])))
    assert found is not None
    assert found.floor == pytest.approx(2 * math.log(2) / 3)
    found = batches.contradiction((X[[0, 0]], torch.tensor([[-100], [3]])))
    assert found is not None
    assert found.floor == 0


@pytest.mark.parametrize(
    "batch", [X, (X, Y, Y), {"x": X}, {"labels": Y}, (X, torch.tensor(1)), (X, Y[:2]), ("a", Y)]
)
def test_other_forms_are_not_looked_at(batch: Any) -> None:
    assert batches.contradiction(batch) is None


def test_gradients_of_frozen_parameters_are_left_out_and_wrappers_names_undone() -> None:
    model = torch.nn.DataParallel(torch.nn.Linear(2, 1))
    model.module.bias.requires_grad_(False)
    found = gradients.of(model, lambda: model(X).sum().backward())
    assert {name: value.tolist() for name, value in found.items()} == {"weight": [[6.0, 9.0]]}


@given(st.floats(0.1, 10), st.integers(0, 5))
def test_the_first_explanation_that_fits_is_given(factor: float, seed: int) -> None:
    torch.manual_seed(seed)
    base = {"a": torch.randn(5), "b": torch.randn(1)}
    other = {name: torch.randn(value.shape) for name, value in base.items()}
    mine = {name: factor * value for name, value in base.items()}
    candidates = {"other": (1.0, other), "scaled": (1.0, gradients.scaled_to(base, mine))}
    assert gradients.explained(mine, candidates, 1e-4) == {"a": "scaled", "b": "scaled"}
    assert gradients.explained(mine, {"other": (1.0, other)}, 1e-4)["a"] == ""
    assert gradients.largest_error(mine, mine) == 0
