"""Several sessions, and several processes of one session, on the cards of this host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pytest_remotegpu.cards
from warmth import Warmth

from . import REMOTE, Run

TESTS = """
    import os, pathlib, time
    import pytest
    import torch

    @pytest.mark.gpu
    @pytest.mark.parametrize("n", range(4))
    def test_alone(n):
        assert torch.cuda.device_count() == 1
        card = pathlib.Path(os.environ["BUSY"], os.environ["CUDA_VISIBLE_DEVICES"])
        card.mkdir()
        ones = torch.ones(512, 512, device="cuda")
        assert (ones @ ones)[0, 0].item() == 512
        time.sleep(0.3)
        card.rmdir()
        print("CARD", os.environ["CUDA_VISIBLE_DEVICES"])
"""


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a folder in which a test that uses a card leaves a sign while it does."""
    monkeypatch.setenv("BUSY", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def together(pytester: pytest.Pytester, home: Warmth, number: int, *more: str) -> list[str]:
    """Run so many sessions at once; give what each of them wrote."""
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(home.runtime), "HOME": str(home.runtime)}
    environ.pop("CI", None)
    command = [sys.executable, "-m", "pytest", REMOTE, "--gpu-required", "-rA", "-p"]
    command += ["no:cacheprovider", *more]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    started = [
        subprocess.Popen(command, cwd=pytester.path, env=environ, **pipes) for _ in range(number)
    ]
    texts = [process.communicate(timeout=150)[0] for process in started]
    assert [process.returncode for process in started] == [0] * number, "\n".join(texts)
    return texts


def cards_in(text: str) -> set[str]:
    return set(re.findall(r"^CARD (\S+)", text, re.MULTILINE))


@pytest.mark.gpu(count=2)
@pytest.mark.timeout(200)
@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.usefixtures("busy")
def test_sessions_on_two_cards(number: int, pytester: pytest.Pytester, home: Warmth) -> None:
    """No card is used by two tests at once; a third session waits, and is not forgotten."""
    pytester.makepyfile(test_it=TESTS)
    began = time.monotonic()
    texts = together(pytester, home, number)
    sys.stdout.write(f"SECONDS {number} {time.monotonic() - began:.1f}\n")
    assert all("4 passed" in text for text in texts)
    assert len(set().union(*map(cards_in, texts))) == 2
    assert any("waiting for 1 GPU" in text for text in texts) == (number == 3)


@pytest.fixture(params=[1, 2])
def visible(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let sessions see so many cards."""
    number: int = request.param
    found = pytest_remotegpu.cards.visible(os.environ)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(card.token for card in found[:number]))
    return number


@pytest.mark.gpu(count=2)
@pytest.mark.timeout(200)
@pytest.mark.usefixtures("busy")
def test_processes_of_one_session(visible: int, run: Run) -> None:
    """``-n 2`` on one card, and on two."""
    pytest.importorskip("xdist")
    result = run("-n2", test_it=TESTS)
    result.assert_outcomes(passed=4)
    assert len(cards_in(result.stdout.str())) <= visible


@pytest.mark.gpu
@pytest.mark.timeout(200)
def test_memory_is_back_when_a_session_has_ended(run: Run) -> None:
    """NVML sees on each card what it saw before, however the tests ended."""
    found = pytest_remotegpu.cards.visible(os.environ)
    before = [pytest_remotegpu.cards.in_use(card.uuid) for card in found]
    result = run(
        "--remote-timeout=5",
        test_it="""
            import os, signal, time
            import pytest
            import torch

            pytestmark = pytest.mark.gpu

            @pytest.fixture(autouse=True)
            def held():
                return torch.empty(2**31, dtype=torch.uint8, device="cuda")

            def test_passes(): pass
            def test_is_killed(): os.kill(os.getpid(), signal.SIGKILL)
            def test_crashes(): os.kill(os.getpid(), signal.SIGSEGV)
            def test_hangs(): time.sleep(1000)
            def test_hangs_on_the_card():
                torch.cuda._sleep(2**62)
                torch.cuda.synchronize()
            def test_goes_on(): pass
        """,
    )
    result.assert_outcomes(passed=2, failed=4)
    end = time.monotonic() + 5
    while True:
        after = [pytest_remotegpu.cards.in_use(card.uuid) for card in found]
        if all(now <= then + 2**24 for now, then in zip(after, before, strict=True)):
            break
        assert time.monotonic() < end, (before, after)
        time.sleep(0.1)
    sys.stdout.write(f"IN USE {before} {after}\n")
