"""What apps at Modal are called."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.backends.modal import table
from pytest_remotegpu.backends.modal.deploying import CLAIMS, LONGEST, QUEUE, name_of, prepared
from pytest_remotegpu.errors import UsageError

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


def test_a_strange_thing_in_the_place_of_the_lock_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NotFoundError(Exception):
        pass

    class Function:
        @classmethod
        def from_name(cls, *_names: str) -> Function:
            return cls()

        def hydrate(self) -> None:
            raise NotFoundError

    modal = SimpleNamespace(
        Function=Function, exception=SimpleNamespace(NotFoundError=NotFoundError)
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lock = tmp_path / f"remotegpu-deploying-{os.getuid()}-an-app"
    lock.mkdir()
    with pytest.raises(UsageError) as caught:
        prepared(modal, {"app": "an-app"}, contextlib.nullcontext, print, print)
    assert str(lock) in str(caught.value)
    assert "Is a directory" in str(caught.value)
    assert "TMPDIR" in str(caught.value)
