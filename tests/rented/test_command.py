"""The command remotegpu sees what a session has at Modal, and ends that and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys

import modal
import pytest

from loopback import LoopbackModal
from session.running import LONG, Started, until

T4 = "--remote=modal:T4"


def remotegpu(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest_remotegpu", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.timeout(120)
def test_a_session_is_seen_and_ended(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    modal.App("rgpu-of-somebody-else", include_source=False).deploy(name="rgpu-of-somebody-else")
    mark = pytester.path / "has-begun"
    pytester.makepyfile(LONG.replace('pathlib.Path("has-begun")', f"pathlib.Path({str(mark)!r})"))
    session = Started(pytester, T4)
    assert until(mark.exists)
    seen = remotegpu("ps")
    (ours,) = re.findall(r"\S*rgpu-[0-9a-f]{12}\S*(?=,)", seen)
    assert "somebody-else" not in seen
    assert "left alone" in remotegpu("stop")
    assert session.process.poll() is None
    remotegpu("stop", ours)
    assert session.process.wait(40) == 1
    living = [app.name for app in service.apps if not app.stopped_at]
    assert living == ["rgpu-of-somebody-else"]
    session.end()
    assert "ended without an answer" in session.text
