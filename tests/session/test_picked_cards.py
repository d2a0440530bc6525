"""Who looks whether a card is of the type that a mark names: the worker, or the backend."""

from __future__ import annotations

import pytest

import fakes
from fakes import Far
from stage import Stage


@pytest.mark.parametrize("picks", [None, False, True])
def test_types_are_for_whoever_knows_their_names(
    picks: bool | None, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An H200 that is given for an H100 is what the backend wanted; memory still has to do."""
    if picks is not None:
        monkeypatch.setattr(fakes.Scripted, "picks_cards", picks, raising=False)
    path = stage.path / "test_far.py"
    marked = 'gpu(type="B200+", min_memory_gib=40)'
    path.write_text(path.read_text().replace("mark.gpu", f"mark.{marked}"))
    needs = []

    def serves(far: Far) -> None:
        needs.append(far.order.needs)
        far.greet()
        far.serve()

    assert stage.run(serves).ret == 0
    [found] = needs
    assert found.type == ([] if picks else ["B200+"])
    assert found.min_memory_gib == 40
