"""Two ways to a loss: that they agree, and that they are two."""

from __future__ import annotations

import copy
import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812 -- as torch's users write it

from diagnostics.models import TinyLlama, sentence
from pytest_remotegpu.diagnostics import losses_agree

LOGITS = torch.randn(6, 10, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(6)


def by_torch(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = F.cross_entropy(logits, targets)
    return loss


def by_hand(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(len(targets))
    loss: torch.Tensor = (logits.logsumexp(-1) - logits[rows, targets]).mean()
    return loss


@pytest.mark.parametrize("seed", range(10))
def test_two_ways_agree(seed: int) -> None:
    logits = torch.randn(6, 10, generator=torch.Generator().manual_seed(seed))
    verdict = losses_agree(lambda: by_torch(logits, TARGETS), lambda: by_hand(logits, TARGETS))
    assert verdict.findings == ()
    assert float(verdict.value("largest difference")) < 1e-5


def test_a_whole_model_agrees_with_its_loss_by_hand() -> None:
    torch.manual_seed(0)
    model, batch = TinyLlama(), sentence(2)

    def by_parts() -> torch.Tensor:
        return by_hand(
            model(**batch)["logits"][:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten()
        )

    assert losses_agree(lambda: model(**batch)["loss"], by_parts).findings == ()


@pytest.mark.parametrize(
    ("wrong", "ratio"),
    [(lambda loss: loss * 6, "0.166667"), (lambda loss: loss + 0.01 * loss, "0.990099")],
)
def test_a_difference_is_named_with_its_ratio(
    wrong: Callable[[torch.Tensor], torch.Tensor], ratio: str
) -> None:
    verdict = losses_agree(
        lambda: by_torch(LOGITS, TARGETS), lambda: wrong(by_hand(LOGITS, TARGETS))
    )
    assert verdict.codes == ("losses-differ",)
    assert f"a is {ratio} times b" in " ".join(str(verdict).split())


def test_bounds_are_what_they_are_said_to_be() -> None:
    def agree(off: float, *, rtol: float = 1e-3, atol: float = 1e-4) -> bool:
        def moved() -> torch.Tensor:
            return by_hand(LOGITS, TARGETS) + off

        return losses_agree(lambda: by_torch(LOGITS, TARGETS), moved, rtol=rtol, atol=atol).passed

    value = float(by_torch(LOGITS, TARGETS))
    bound = 1e-4 + 1e-3 * value
    assert agree(0.95 * bound)
    assert not agree(1.05 * bound)
    assert agree(0.5, atol=1.0)
    assert not agree(0.5 * bound, rtol=0.0, atol=1e-6)


def test_a_patch_that_holds_for_both_sides_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert losses_agree(lambda: by_torch(LOGITS, TARGETS), lambda: by_hand(LOGITS, TARGETS)).passed
    monkeypatch.setattr(F, "cross_entropy", by_hand)
    verdict = losses_agree(
        lambda: F.cross_entropy(LOGITS, TARGETS), lambda: by_hand(LOGITS, TARGETS)
    )
    assert verdict.codes == ("same-code",)
    assert verdict.value("largest difference") == 0
    assert any("by_hand (test_agreement.py:" in name for name in verdict.findings[0].where)


def test_a_patch_below_different_functions_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(F, "cross_entropy", by_hand)
    verdict = losses_agree(lambda: by_torch(LOGITS, TARGETS), lambda: by_hand(LOGITS, TARGETS))
    assert verdict.codes == ("same-operations",)
    assert any("by_hand" in name for name in verdict.findings[0].where)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Make a library with a model whose layer can be replaced for the whole process."""
    (tmp_path / "library.py").write_text(
        "import torch\n"
        "def norm(x): return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)\n"
        "def fast(x): return torch.nn.functional.rms_norm(x, x.shape[-1:], eps=1e-6)\n"
        "def model(x): return norm(x).exp().mean()\n"
        "def speed_up():\n    global norm\n    norm = fast\n",
        encoding="utf-8",
    )
    spec = importlib.util.spec_from_file_location("library", tmp_path / "library.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "library", module)
    spec.loader.exec_module(module)
    return module


def test_a_library_sped_up_for_one_side_only_is_named(library: ModuleType) -> None:
    plain = library.norm
    fast = lambda: (library.speed_up(), library.model(LOGITS))[1]  # noqa: E731 -- as in the wild

    verdict = losses_agree(fast, lambda: library.model(LOGITS))
    assert verdict.codes[0].startswith("same-")

    def slow() -> Any:
        library.norm = plain  # type: ignore[attr-defined]
        return library.model(LOGITS)

    assert losses_agree(slow, fast).findings == ()


def test_what_torch_does_not_see_tells_sides_apart_only_where_it_differs() -> None:
    def counted(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        np.cumsum(np.ones(3))
        return F.cross_entropy(logits, targets)

    def counted_too(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        np.cumsum(np.ones(3))
        return F.cross_entropy(logits, targets)

    assert losses_agree(
        lambda: counted(LOGITS, TARGETS), lambda: counted_too(LOGITS, TARGETS)
    ).codes == ("same-operations",)
    assert losses_agree(lambda: counted(LOGITS, TARGETS), lambda: by_torch(LOGITS, TARGETS)).passed


def test_a_compiled_side_is_another_one() -> None:
    compiled = torch.compile(by_hand, backend="aot_eager")
    verdict = losses_agree(lambda: compiled(LOGITS, TARGETS), lambda: by_hand(LOGITS, TARGETS))
    assert "same-code" not in verdict.codes


def test_the_same_operations_by_other_functions_may_be_wanted() -> None:
    def again(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, targets)

    paths = lambda: by_torch(LOGITS, TARGETS), lambda: again(LOGITS, TARGETS)
    assert losses_agree(*paths).codes == ("same-operations",)
    assert losses_agree(*paths, same_operations=True).findings == ()


def test_the_same_code_with_other_weights_may_be_wanted() -> None:
    torch.manual_seed(0)
    model, batch = TinyLlama(), sentence()
    twin = copy.deepcopy(model)
    paths = lambda: model(**batch)["loss"], lambda: twin(**batch)["loss"]
    assert losses_agree(*paths).codes == ("same-code",)
    assert losses_agree(*paths, same_operations=True).findings == ()
    twin.head.weight.data[:] = 0
    assert losses_agree(*paths, same_operations=True).codes == ("losses-differ",)


def test_the_same_code_in_another_dtype_is_another_side() -> None:
    short = LOGITS.bfloat16()
    verdict = losses_agree(
        lambda: by_hand(short, TARGETS), lambda: by_hand(LOGITS, TARGETS), rtol=0.1
    )
    assert verdict.findings == ()


def test_a_path_with_itself_is_named() -> None:
    def path() -> torch.Tensor:
        return by_torch(LOGITS, TARGETS)

    assert losses_agree(path, path).codes == ("same-code",)


def test_paths_that_compute_nothing_are_named() -> None:
    loss = by_torch(LOGITS, TARGETS)
    verdict = losses_agree(lambda: loss, lambda: by_hand(LOGITS, TARGETS))
    assert verdict.codes == ("nothing-ran",)
    assert verdict.findings[0].where == ("path a",)


def test_what_is_not_finite_never_agrees() -> None:
    verdict = losses_agree(
        lambda: by_torch(LOGITS, TARGETS) * math.nan, lambda: by_hand(LOGITS, TARGETS) * math.nan
    )
    assert verdict.codes == ("not-finite",)
    assert len(verdict.findings[0].where) == 2


def test_several_results_are_compared_part_by_part() -> None:
    verdict = losses_agree(
        lambda: {"loss": by_torch(LOGITS, TARGETS), "ends": [LOGITS[0] * 1, LOGITS[1] + 0]},
        lambda: {"loss": by_hand(LOGITS, TARGETS), "ends": [LOGITS[0] * 1, LOGITS[1] + 1]},
    )
    assert verdict.codes == ("losses-differ",)
    assert verdict.findings[0].where == ("['ends'][1]",)


def test_random_numbers_are_the_same_for_both() -> None:
    def dropped(loss: Callable[..., torch.Tensor]) -> torch.Tensor:
        return loss(F.dropout(LOGITS, 0.5), TARGETS)

    assert losses_agree(lambda: dropped(by_torch), lambda: dropped(by_hand)).passed


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (lambda: LOGITS * 1, LOGITS.mean, "different parts or sizes"),
        (lambda: {"x": LOGITS.mean()}, LOGITS.mean, "different parts or sizes"),
        (lambda: "loss", LOGITS.mean, "a path gave str"),
    ],
)
def test_what_can_not_be_compared_is_refused(
    a: Callable[[], Any], b: Callable[[], Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        losses_agree(a, b)


def test_a_profile_of_ones_own_goes_on() -> None:
    def mine(*_: object) -> None: ...

    sys.setprofile(mine)
    try:
        losses_agree(lambda: by_torch(LOGITS, TARGETS), lambda: by_hand(LOGITS, TARGETS))
        assert sys.getprofile() is mine
    finally:
        sys.setprofile(None)
