"""Attention kernels against the formula, with each fault planted in a path."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 -- as torch's users write it

from pytest_remotegpu.diagnostics import Verdict, attention_parity

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(
    seed: int = 0, lengths: tuple[int, int] = (5, 9), dtype: Any = torch.float32, heads: int = 4
) -> Three:
    numbers = torch.Generator().manual_seed(seed)

    def some(heads: int, length: int) -> torch.Tensor:
        return torch.randn(2, heads, length, 16, generator=numbers).to(dtype)

    return some(4, lengths[0]), some(heads, lengths[1]), some(heads, lengths[1])


def by_hand(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scale: float = 0.25,
    shift: int | None = 0,
) -> torch.Tensor:
    scores = query @ key.transpose(-2, -1) * scale
    if shift is not None:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(shift)
        scores = scores.masked_fill(~seen, -math.inf)
    return scores.softmax(-1) @ value


def judged(path: Any, three: Three | None = None, **more: Any) -> Verdict:
    return attention_parity(*(three or inputs()), causal=True, paths={"own": path}, **more)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("seed", range(10))
def test_kernels_agree(seed: int, dtype: Any) -> None:
    for corner in ("top-left", "bottom-right"):
        shift = 0 if corner == "top-left" else 16
        three = inputs(seed, (24, 40), dtype)
        verdict = judged(lambda q, k, v, s=shift: by_hand(q, k, v, shift=s), three, corner=corner)
        assert verdict.findings == ()
        assert str(verdict.value("kernel of sdpa, math")).startswith("math (")


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_masks_and_shared_heads_agree(*, additive: bool, causal: bool) -> None:
    mask: torch.Tensor = torch.rand(2, 1, 5, 9, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[..., 0] = True
    if additive:
        mask = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    assert attention_parity(*inputs(heads=2), mask=mask, causal=causal).passed


def narrowed(name: str, seed: int, dtype: Any) -> Three:
    """Make inputs with which a gradient is a sum that cancels, to nothing or nearly so."""
    query, key, value = inputs(seed, (24, 40), dtype)
    if name == "one-key":
        return query, key[:, :, :1], value[:, :, :1]
    alike = {"keys": (1, 0), "values": (0, 1), "keys-and-values": (1, 1)}.get(name, (0, 0))
    key = key[:, :, :1].expand_as(key) if alike[0] else key
    value = value[:, :, :1].expand_as(value) if alike[1] else value
    if name == "nearly-alike-keys":
        key = (key[:, :, :1] + 1e-4 * key.float()).to(dtype)
    return query, key, value


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize(
    "name", ["keys", "nearly-alike-keys", "values", "keys-and-values", "one-key"]
)
def test_kernels_agree_where_gradients_cancel(name: str, dtype: Any) -> None:
    for seed in range(3):
        three = narrowed(name, seed, dtype)
        if name == "one-key":
            verdict = attention_parity(*three, paths={"own": lambda *t: by_hand(*t, shift=None)})
        else:
            verdict = judged(by_hand, three)
        assert [f.code for f in verdict.findings if f.fails] == [], str(verdict)


class Enlarged(torch.autograd.Function):
    """Gives what came in, and a tenth more of its gradient on the way back."""

    @staticmethod
    def forward(_: Any, tensor: torch.Tensor) -> torch.Tensor:
        """Give a copy."""
        return tensor.clone()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Give too much."""
        return gradient * 1.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_a_wrong_gradient_is_seen_in_each_dtype(wrong: int, dtype: Any) -> None:
    def own(*three: torch.Tensor) -> torch.Tensor:
        some = [Enlarged.apply(t) if at == wrong else t for at, t in enumerate(three)]
        return by_hand(some[0], some[1], some[2])

    for seed in range(3):
        verdict = judged(own, inputs(seed, (24, 40), dtype))
        assert [f.code for f in verdict.findings if f.fails] == ["attention-gradients-differ"]


def test_the_kernel_that_ran_is_named_and_others_say_why_not() -> None:
    verdict = attention_parity(*inputs(), causal=True)
    assert str(verdict.value("kernel of sdpa")).startswith("flash (aten::_scaled_dot_product_flash")
    assert str(verdict.value("kernel of sdpa, math")).startswith("math (")
    assert str(verdict.value("kernel of sdpa, cudnn")).startswith("none: No ")
    assert verdict.passed


@pytest.mark.parametrize(
    ("corner", "shift", "words"),
    [
        ("top-left", 4, "bottom right where top left was meant, with 5 queries and 9 keys"),
        ("bottom-right", 0, "top left where bottom right was meant, with 5 queries and 9 keys"),
    ],
)
def test_wrong_mask_corner(corner: str, shift: int, words: str) -> None:
    verdict = judged(lambda q, k, v: by_hand(q, k, v, shift=shift), corner=corner)
    assert verdict.codes == ("mask-corner",)
    assert words in verdict.findings[0].what
    assert verdict.findings[0].where == ("own",)


@pytest.mark.parametrize("empty", [0.0, math.nan])
def test_wrong_corner_where_it_leaves_queries_without_keys(empty: float) -> None:
    def own(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return by_hand(query, key, value, shift=-4).nan_to_num(empty)

    assert judged(own, inputs(lengths=(9, 5))).codes == ("mask-corner",)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"scale": 1.0}, "missing-scaling"),
        ({"scale": 0.25**2}, "scaled-twice"),
        ({"shift": None}, "mask-ignored"),
        ({"scale": 0.3}, "attention-differs"),
        ({"scale": math.nan}, "not-finite"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_fault_has_its_name(more: dict[str, Any], code: str, dtype: Any) -> None:
    verdict = judged(lambda q, k, v: by_hand(q, k, v, **more), inputs(dtype=dtype))
    assert verdict.codes == (code,)
    assert verdict.findings[0].where == ("own",)


def test_one_wrong_row_of_many_is_seen() -> None:
    def own(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        output = by_hand(query, key, value)
        return torch.cat([output[..., :-1, :], output[..., -1:, :] * 1.1], dim=-2)

    assert judged(own, inputs(lengths=(500, 500), dtype=torch.bfloat16)).codes == (
        "attention-differs",
        "equal-lengths",
    )


def test_gradients_are_compared() -> None:
    verdict = judged(lambda q, k, v: by_hand(q, k.detach(), v))
    assert verdict.codes == ("attention-gradients-differ",)
    assert "gradient of key differs" in verdict.findings[0].what


def test_a_fallback_of_torchs_choice_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = F.scaled_dot_product_attention

    def slow(*args: Any, **more: Any) -> torch.Tensor:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            result: torch.Tensor = whole(*args, **more)
            return result

    three = inputs()
    assert attention_parity(*three, expect="flash").passed
    monkeypatch.setattr(F, "scaled_dot_product_attention", slow)
    verdict = attention_parity(*three)
    assert verdict.codes[-1] == "kernel-fallback"
    assert not verdict.findings[-1].fails
    verdict = attention_parity(*three, expect="flash")
    assert not verdict.passed
    assert "the kernel that ran is math, where flash was asked for" in str(verdict)


def test_a_path_that_falls_back_is_named() -> None:
    verdict = judged(by_hand, expect={"own": "flash-attn"})
    assert verdict.codes == ("kernel-fallback",)
    assert "own: the kernel that ran is written out, where flash-attn" in verdict.findings[0].what


def test_what_cannot_be_meant() -> None:
    query, key, value = inputs()
    with pytest.raises(ValueError, match="batch, heads"):
        attention_parity(query[0], key, value)
    with pytest.raises(ValueError, match="see no key"):
        attention_parity(*inputs(lengths=(9, 5)), causal=True, corner="bottom-right")
    with pytest.raises(ValueError, match=r"expect= names \['owm'\]"):
        attention_parity(query, key, value, expect={"owm": "flash"})
    with pytest.raises(ValueError, match="names that are used here"):
        attention_parity(query, key, value, paths={"sdpa": by_hand})
    with pytest.raises(ValueError, match="gave the shape"):
        attention_parity(query, key, value, paths={"own": lambda q, k, v: q[0]})  # noqa: ARG005
    with pytest.raises(ZeroDivisionError):
        attention_parity(query, key, value, paths={"own": lambda q, k, v: 1 / 0})  # noqa: ARG005
