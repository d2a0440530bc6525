"""The prompts that docs/debugging.md shows: each line is typed, and the page says what comes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from docs import blocks

from .seat import PROMPT, Seat

PAGE = blocks.ROOT / "docs" / "debugging.md"
TYPED = [block for block in blocks.read(PAGE) if "tested in" in block.directives]


def write_files(folder: Path) -> None:
    """Write the page's files."""
    for block in blocks.read(PAGE):
        if "file" in block.directives:
            (folder / block.directives["file"]).write_text(block.text, encoding="utf-8")


@pytest.mark.parametrize("block", TYPED, ids=lambda block: f"line {block.line}")
def test_what_the_page_shows(block: blocks.Block, project: Path) -> None:
    """Its commands are typed one after the other, each at a prompt."""
    write_files(project)
    command, _, shown = block.text.removeprefix("$ ").partition("\n")
    pytest_, *words = shlex.split(command)
    assert pytest_ == "pytest"
    keys = [line.removeprefix(PROMPT) for line in shown.splitlines() if line.startswith(PROMPT)]
    assert keys
    with Seat(project, *words, rows=30, columns=80) as seat:
        for line in keys:
            seat.expect(PROMPT)
            seat.type(f"{line}\r")
        seat.end()
    text = seat.text.replace(str(project), blocks.SHOWN_FOLDER)
    difference = blocks.differs(shown, text)
    assert not difference, difference


def test_there_are_such_blocks() -> None:
    """Or this file tries nothing."""
    assert len(TYPED) == 2
