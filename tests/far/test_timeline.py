"""The phases of workers that collect: those that run tests afterwards, and those that don't."""

from __future__ import annotations

import sys

import pytest

from session.running import run, said

SENT = (
    "--remote=command:env PYTEST_REMOTEGPU_PRETEND_GPUS=2",
    "-o",
    f"remotegpu_python={sys.executable}",
    "--remote-timeline",
)


def phases(text: str) -> dict[str, list[str]]:
    """Give the names of the phases by whose they are."""
    found: dict[str, list[str]] = {}
    section = text.partition("remote timeline")[2].splitlines()[2:]  # without the heads
    for line in section:
        words = line.split()
        if not words:
            break
        found.setdefault(words[0], []).append(" ".join(words[5:]))
    return found


def test_files_are_sent_to_the_worker_that_collects_and_runs(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a="import pytest\n@pytest.mark.gpu\ndef test_a(): pass")
    result = run(pytester, *SENT)
    result.assert_outcomes(passed=1)
    (worker,) = [names for who, names in phases(said(result)).items() if who != "here"]
    assert worker.count("files") == 1, said(result)
    places = [worker.index(name) for name in ("hello", "files", "collection there", "first test")]
    assert places == sorted(places), said(result)


def test_a_worker_that_only_collects_is_shown(pytester: pytest.Pytester) -> None:
    """How many cards a test wants is known only once its file is collected."""
    pytester.makepyfile(
        test_a="""
            import pytest
            COUNT = int("2")

            @pytest.mark.gpu(COUNT)
            def test_a(): pass
        """
    )
    result = run(pytester, *SENT)
    result.assert_outcomes(passed=1)
    collects, runs = [names for who, names in phases(said(result)).items() if who != "here"]
    assert {"hello", "files"} <= {*collects}, said(result)  # what it says when let go is not heard
    assert "first test" not in collects
    assert "first test" in runs
