"""The projects that are measured: many marked tests that do next to nothing, or print a lot.

Knows how to write files; knows nothing of who runs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["LOUD", "MANY", "TRIVIAL", "Suite"]

HEAD: Final = """\
import pytest

LINE = "x" * 99 + "\\n"


@pytest.mark.gpu
@pytest.mark.parametrize("number", range({count}))
def test_nothing(number):
"""
CONFTEST: Final = """\
import importlib.util

if importlib.util.find_spec("torch") is not None:
    import torch
"""
"""What tests of GPUs import, and so all that are measured: pytest itself has more to do for each
test where torch is there, since it attaches its log handlers to each of torch's loggers."""
LINES_OF_100_KB: Final = 1000


@dataclass(frozen=True)
class Suite:
    """One project.

    :ivar kind: what its tests are; :ivar tests: how many; :ivar files: in how many files.
    :ivar lines: lines of 100 bytes that each test prints.
    """

    kind: str
    tests: int
    files: int
    lines: int = 0

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"{self.tests} {self.kind}"

    def scaled(self, factor: float) -> Suite:
        """Give the same with fewer tests, at least one in each file."""
        each = max(round(self.tests * factor / self.files), 1)
        return Suite(self.kind, each * self.files, self.files, self.lines)

    def write(self, folder: Path) -> Path:
        """Write the project into a new folder inside ``folder``, and give its path."""
        root = folder / self.name.replace(" ", "-")
        root.mkdir(parents=True)
        markers = "[pytest]\nmarkers = gpu: not asked for here, but plain pytest has to know it\n"
        (root / "pytest.ini").write_text(markers, encoding="utf-8")
        (root / "conftest.py").write_text(CONFTEST, encoding="utf-8")
        body = f'    print(LINE * {self.lines}, end="")\n' if self.lines else "    pass\n"
        text = HEAD.format(count=self.tests // self.files) + body
        for number in range(self.files):
            (root / f"test_{number:02}.py").write_text(text, encoding="utf-8")
        return root


TRIVIAL: Final = Suite("trivial", 1_000, 10)
MANY: Final = Suite("trivial", 10_000, 20)
LOUD: Final = Suite("of 100 KB", 1_000, 10, LINES_OF_100_KB)
