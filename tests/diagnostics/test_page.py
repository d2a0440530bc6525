"""The page explains each finding that a check may have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_remotegpu import diagnostics

PAGE = Path(__file__).parents[2] / "docs" / "diagnostics.md"
HOME = Path(diagnostics.__file__).parent
NAME = re.compile(r'"([a-z]+(?:-[a-z]+)+)"')


@pytest.mark.parametrize(
    "module",
    [
        *("accumulating", "agreement", "attending", "beginnings", "beside", "causes", "compiling"),
        *("exchanges", "kernels", "paired", "patched", "resuming", "scaling", "shards"),
        *("suite", "synchronising"),
    ],
)
def test_each_finding_is_explained(module: str) -> None:
    names = set(NAME.findall((HOME / f"{module}.py").read_text(encoding="utf-8")))
    assert names
    page = PAGE.read_text(encoding="utf-8")
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_each_public_function_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    functions = [name for name in diagnostics.__all__ if name.islower()]
    assert "overfit" in functions
    assert [name for name in functions if f"`{name}" not in page] == []
