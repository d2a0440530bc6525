"""``remotegpu run`` on a host with cards: which ones a command sees, and who is kept from them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .conftest import Host

pytestmark = pytest.mark.usefixtures("home")


def remotegpu(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest_remotegpu", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.timeout(180)
def test_a_command_holds_its_cards(pytester: pytest.Pytester, host: Host) -> None:
    """It sees so many as were asked for, and has the lease of them while it runs."""
    assert pytester.path.is_dir()
    host.has("H200", "H200", "H200")
    look = f"{sys.executable} -m pytest_remotegpu ps; echo sees $CUDA_VISIBLE_DEVICES"
    done = remotegpu("run", "--remote=local", "--gpu-count=2", "--", "sh", "-c", look)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("leased by process") == 2
    assert len(done.stdout.partition("sees ")[2].split(",")) == 2
    assert "leased" not in remotegpu("ps").stdout
    done = remotegpu("run", "--remote=local", "--gpu-count=4", "--", "true")
    assert (done.returncode, done.stdout) == (125, "")
    assert "3" in done.stderr
