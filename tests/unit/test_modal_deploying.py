"""What apps at Modal are called."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.backends.modal import table
from pytest_remotegpu.backends.modal.deploying import CLAIMS, LONGEST, QUEUE, name_of, why

PRINT = "0123456789abcdef0123"
LISTS = st.lists(st.sampled_from(sorted(table.TYPES)), min_size=1, unique=True)


def gpu(names: list[str], count: int) -> str:
    return ",".join(f"{name}:{count}" if count > 1 else name for name in names)


@given(LISTS, st.integers(1, 8))
def test_a_name_is_one_for_modal(names: list[str], count: int) -> None:
    found = name_of(PRINT, gpu(names, count))
    assert len(found) <= LONGEST
    for name in (found, found + QUEUE, found + CLAIMS):
        assert re.fullmatch(r"rgpu-[a-z0-9-]{1,59}", name)


def test_no_two_lists_share_an_app() -> None:
    long = [*itertools.combinations(sorted(table.TYPES), 9)]
    assert any(len(name_of(PRINT, gpu([*names], 8))) == LONGEST for names in long)
    assert len({name_of(PRINT, gpu([*names], 8)) for names in long}) == len(long)


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ({"reason": "uv.lock is new"}, "uv.lock is new"),
        ({"reason": "uv.lock is new", "ephemeral": True}, "uv.lock is new"),
        ({"ephemeral": True}, "--remote-ephemeral leaves none for a second session"),
        ({"gpu": "H100,L4"}, "none was deployed yet for H100,L4"),
        ({"gpu": "L4"}, "it was never deployed"),
    ],
)
def test_there_is_always_a_reason(order: dict[str, object], reason: str) -> None:
    whole = {"app": "rgpu-x", "reason": "", "ephemeral": False, "gpu": "T4", **order}
    assert why(whole) == f"builds rgpu-x, since {reason}"
