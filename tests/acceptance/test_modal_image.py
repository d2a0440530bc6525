"""An image that is really built, from the package index: what a worker finds in it.

Each layer is a virtual environment on this machine; nothing of the interpreter that runs these
tests is in it, so a container has this package only if the image brings it along.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from session.running import run, said

pytest.importorskip("modal")
from loopback import LoopbackModal

MODAL = "--remote=modal:T4"


@pytest.fixture(scope="module")
def index() -> None:
    """Have a package index."""
    asked = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "-q"]
    done = subprocess.run(
        [*asked, "--no-deps", "iniconfig"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no package index: {done.stderr.strip()[-200:]}")


@pytest.mark.usefixtures("index")
def test_a_container_has_what_the_project_asks_for_and_this_package(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makefile(".txt", requirements="sortedcontainers==2.4.0\n-c limits.txt\n")
    pytester.makefile(".txt", limits="iniconfig<99\n")
    pytester.makepyfile("""
        import importlib.metadata
        import importlib.util
        import sys
        import pytest

        @pytest.mark.gpu
        def test_there(artifacts_dir):
            import sortedcontainers

            assert sortedcontainers.__version__ == "2.4.0"
            assert importlib.metadata.version("pytest-remotegpu")
            assert "root" in sys.modules["pytest_remotegpu"].__file__
            assert importlib.util.find_spec("hypothesis") is None
            (artifacts_dir / "file").touch()
    """)
    with LoopbackModal(tmp_path / "modal", images="venv") as service:
        for name, value in service.environ.items():
            monkeypatch.setenv(name, value)
        result = run(pytester, MODAL)
        result.assert_outcomes(passed=1)
        assert "Successfully installed sortedcontainers-2.4.0" in said(result)
        assert "artifacts: 1 in" in said(result)
        again = run(pytester, MODAL)
        assert "sortedcontainers" not in said(again)
