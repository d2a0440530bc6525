"""Requirements that are folders here: what they depend on is installed, nothing of their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_remotegpu.recipe import Here, Recipe, declare, read

PROJECT = """
[project]
name = "mine"
version = "1"
dependencies = ["numpy", "My.Lib[fast]>=1"]
[tool.uv.sources]
my-lib = SOURCE
"""
LIB = """
[project]
name = "my_lib"
version = "1"
dependencies = ["einops"]
optional-dependencies.fast = ["triton"]
"""


def recipe_of(root: Path) -> Recipe:
    here = Here("3.12", "9.2.0", "0.1", ("pytest>=8.4",))
    return read(root, declare(requirements=[], image=[], secrets=[], volumes=[]), here)


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("{ path = '../lib' }", "lib"),
        ("{ path = '../lib', editable = true }", "lib"),
        ("[{ path = '../lib', marker = 'x' }, { index = 'y' }]", "lib"),
        ("{ workspace = true }", "packages/lib"),
    ],
)
def test_a_source_that_is_a_folder(tmp_path: Path, source: str, place: str) -> None:
    """A registry may have another project of that name, which must never be installed."""
    write(tmp_path, "[tool.uv.workspace]\nmembers = ['', '/', 'packages/*', 'project']\n")
    (tmp_path / "packages" / "empty").mkdir(parents=True)
    write(tmp_path / place, LIB)
    root = write(tmp_path / "project", PROJECT.replace("SOURCE", source))
    recipe = recipe_of(root)
    assert recipe.files.lines == ("numpy", "einops", "triton")
    assert recipe.notes == ()


@pytest.mark.parametrize(
    "source", ["{ path = '../none' }", "{ workspace = true }", "{ git = 'https://x' }", "'odd'"]
)
def test_a_source_that_is_none_is_noted(tmp_path: Path, source: str) -> None:
    root = write(tmp_path / "project", PROJECT.replace("SOURCE", source))
    recipe = recipe_of(root)
    assert recipe.files.lines == ("numpy", "My.Lib[fast]>=1")
    [note] = recipe.notes
    assert "[tool.uv.sources] where my-lib come from" in note
