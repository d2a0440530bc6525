"""What tests of one host share: a user's home of warm processes, and cards."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cardfile
from warmth import Warmth, warmth

HOLDS = """
    import pathlib, time
    import pytest

    @pytest.mark.gpu
    def test_holds():
        pathlib.Path("BEGUN").touch()
        while not pathlib.Path("GO").exists():
            time.sleep(0.02)
"""
"""A project whose test begins, says so, and waits until it is let go."""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Warmth]:
    """A home of this test's own, in which sessions use what is warm."""
    monkeypatch.delenv("CI", raising=False)
    with warmth() as made:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(made.runtime))
        yield made


class Host:
    """Cards of this test alone, since the locks are those of the whole machine."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "cards.json"
        self._first = os.getpid() * 1000 + int(time.monotonic() * 10) % 900
        self.environ = cardfile.environment(self._file)

    def has(self, *names: str, **more: object) -> list[str]:
        """Let the host have these cards; give their UUIDs."""
        cards = [
            cardfile.fake_card(self._first + place, name, **more)  # type: ignore[arg-type]
            for place, name in enumerate(names)
        ]
        cardfile.write_cards(self._file, cards)
        return [str(card["uuid"]) for card in cards]


@pytest.fixture
def host(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(pytester.mkdir("host"))
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    return made
