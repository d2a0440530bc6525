"""Builds of images as a user sees them: what is said, when, and what of it with ``-q``."""

from __future__ import annotations

import pytest

from loopback import LoopbackModal
from session.running import Started, run, said

T4 = "--remote=modal:T4"
ONE = "import pytest\n\n@pytest.mark.gpu\ndef test_one(): pass\n"
STEP = "uv pip install"
SLOW = 4.0


def test_lines_come_while_it_builds(
    pytester: pytest.Pytester, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step as it begins, and where one is silent, at intervals how long it has taken."""
    service.faults.slow_build = {STEP: SLOW}
    monkeypatch.setenv("REMOTEGPU_PROGRESS", "1")
    pytester.makepyfile(ONE)
    with Started(pytester, T4) as session:
        assert session.end() == 0
        text = session.text
        step, built = session.at(STEP), session.at("deployed rgpu-")
        assert session.at("builds rgpu-") < step < built - SLOW / 2
        ticks = [line for line in text.splitlines() if "builds the image (" in line]
        assert len(ticks) >= 2
        assert step < session.at(ticks[0]) < session.at(ticks[1]) < built
        assert all(line.startswith("remote: builds the image (") for line in ticks)
        seconds = [int(line.partition("(")[2].partition(" s)")[0]) for line in ticks]
        assert seconds == sorted(set(seconds))
        assert "\r" not in text.replace("\r\n", "\n")
        assert "\x1b" not in text


def test_quiet_says_why_and_no_more(
    pytester: pytest.Pytester, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.faults.slow_build = {STEP: SLOW / 2}
    monkeypatch.setenv("REMOTEGPU_PROGRESS", "0.5")
    pytester.makepyfile(ONE)
    text = said(run(pytester, T4, "-q"))
    assert "1 passed" in text
    assert "builds rgpu-" in text
    assert "builds the image" not in text
    assert STEP not in text


def test_a_failing_build_shows_its_last_lines_even_then(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    service.faults.build_failure = "no such package: flosh-attn"
    pytester.makepyfile(ONE)
    result = run(pytester, T4, "-q")
    result.assert_outcomes(errors=1)
    assert "no such package: flosh-attn" in said(result)


def test_an_interval_that_is_none(
    pytester: pytest.Pytester, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMOTEGPU_PROGRESS", "often")
    pytester.makepyfile(ONE)
    result = run(pytester, T4)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*REMOTEGPU_PROGRESS='often' is no number of seconds*"])
    assert not service.calls
