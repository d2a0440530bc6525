"""Which keys a query sees, against loops over all places; and the two corners of a causal mask."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from bench.fa2.problems import by_hand, compressed, doubled, sliding
from pytest_remotegpu.bench.fa2 import formula, masks, tensors
from pytest_remotegpu.bench.fa2.masks import Corner
from pytest_remotegpu.bench.thresholds import compressed_length

SIZES = st.integers(1, 14)


@given(SIZES, SIZES, st.none() | SIZES, st.sampled_from(Corner))
@settings(deadline=None)
def test_a_causal_mask_is_that_of_its_corner(
    queries: int, keys: int, window: int | None, corner: Corner
) -> None:
    found = masks.banded(queries, keys, window, corner=corner)
    for query in range(queries):
        own = query if corner is Corner.TOP_LEFT else query + keys - queries
        for key in range(keys):
            near = window is None or own - key < window
            assert bool(found[query, key]) == (key <= own and near)


@given(SIZES, SIZES)
@settings(deadline=None)
def test_with_as_many_queries_as_keys_the_corners_are_one(tokens: int, window: int) -> None:
    one, other = (masks.banded(tokens, tokens, window, corner=corner) for corner in Corner)
    assert torch.equal(one, other)


def test_torch_starts_at_the_top_left() -> None:
    """So a causal mask of torch's own is not FlashAttention's where lengths differ."""
    query, key = torch.randn(1, 1, 3, 8), torch.randn(1, 1, 7, 8)
    found = scaled_dot_product_attention(query, key, key, is_causal=True).transpose(1, 2)
    three = (one.transpose(1, 2) for one in (query, key, key))
    query, key, value = three
    same, other = (
        formula.attend(query, key, value, masks.banded(3, 7, None, corner=corner))
        for corner in (Corner.TOP_LEFT, Corner.BOTTOM_RIGHT)
    )
    assert torch.allclose(found, same, atol=1e-6)
    assert not torch.allclose(found, other, atol=1e-2)


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 20))
@settings(deadline=None)
def test_a_compressed_token_is_seen_once_its_block_has_ended(
    length: int, block: int, stride: int
) -> None:
    found = masks.compressed(length, block, stride)
    assert found.shape == (length, compressed_length(length, block, stride))
    for query in range(length):
        ended = [
            token
            for token in range(found.shape[1])
            if max(range(token * stride, token * stride + block)) <= query
        ]
        assert found[query].nonzero().flatten().tolist() == ended
        assert masks.seen_tokens(query, block, stride) == len(ended)


def test_numbers_of_the_usual_sweep() -> None:
    problem = compressed(256, 32, 16)
    assert (masks.keys(problem), masks.blind(problem)) == (15, 31)
    seen = masks.of_problem(problem).sum(-1).tolist()
    assert seen[:31] == [0] * 31
    assert seen[31:47] == [1] * 16
    assert (seen[254], seen[255]) == (14, 15)
    assert (masks.keys(sliding(256)), masks.blind(sliding(256))) == (256, 0)


@pytest.mark.parametrize("window", [1, 2, 5, 11, 12, 40])
def test_the_formula_is_attention_over_a_window(window: int) -> None:
    problem = sliding(11, window)
    inputs = doubled(tensors.make(problem, "cpu"))
    found = formula.attend(*inputs.three, masks.of_problem(problem))
    expected = by_hand(inputs, lambda query, key: 0 <= query - key < window)
    assert torch.allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(("length", "block", "stride"), [(15, 4, 2), (16, 5, 3), (9, 9, 4)])
def test_the_formula_is_attention_over_compressed_tokens(
    length: int, block: int, stride: int
) -> None:
    problem = compressed(length, block, stride)
    inputs = doubled(tensors.make(problem, "cpu"))
    found = formula.attend(*inputs.three, masks.of_problem(problem))
    expected = by_hand(inputs, lambda query, key: key * stride + block - 1 <= query)
    assert torch.allclose(found, expected, atol=1e-12)
    assert not found[:, : block - 1].any()


@pytest.mark.parametrize("problem", [sliding(), compressed()], ids=["sliding", "compressed"])
def test_long_sequences_are_computed_a_part_at_a_time(problem: object) -> None:
    assert isinstance(problem, type(sliding()))
    inputs = tensors.make(problem, "cpu")
    seen = masks.of_problem(problem)
    whole = formula.parts(inputs, seen, torch.float32)
    parts = formula.parts(inputs, seen, torch.float32, most=1)
    for one, other in zip(whole, parts, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    assert torch.equal(whole[0], formula.output(inputs, seen, torch.float32))
