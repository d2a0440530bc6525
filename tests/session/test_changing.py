"""Files that change after they were listed: the session goes on, and says what is missing."""

from __future__ import annotations

import sys

import pytest

from .running import run, said

HOST = "--remote=command:env PYTEST_REMOTEGPU_PRETEND_GPUS=1"


def test_files_that_change_while_they_are_sent(pytester: pytest.Pytester) -> None:
    """A log that grows still begins with what it was; a file that is rewritten is left out."""
    pytester.makeini(f"[pytest]\nremotegpu_python = {sys.executable}\n")
    (pytester.path / "grows.log").write_text("first\n")
    (pytester.path / "rewritten.txt").write_text("before\n")
    pytester.makeconftest(
        """
        import pathlib

        def pytest_remotegpu_order(order):
            with open("grows.log", "a") as file:
                file.write("second\\n")
            pathlib.Path("rewritten.txt").write_text("after!\\n")
        """
    )
    pytester.makepyfile(
        """
        import pathlib
        import pytest

        @pytest.mark.gpu
        def test_grown():
            assert pathlib.Path("grows.log").read_text() == "first\\n"

        @pytest.mark.gpu
        def test_rewritten():
            pathlib.Path("rewritten.txt").read_text()
        """
    )
    result = run(pytester, HOST)
    result.assert_outcomes(passed=1, failed=1)
    assert "not sent: 'rewritten.txt' changed after the snapshot was taken" in said(result)
