"""What ``--remote-debug`` shows: how a worker is started, what runs there, and when."""

from __future__ import annotations

import re
import sys

import pytest

from .running import CPU, run


@pytest.mark.parametrize("collects", ["far", "here"])
def test_timeline_with_commands(pytester: pytest.Pytester, collects: str) -> None:
    """Each is told of when it came, a worker's hello before the tests that it collects."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.gpu
        def test_far():
            pass
        """
    )
    own = ("-o", f"remotegpu_collect={collects}")
    result = run(pytester, CPU, "--remote-fresh", "--remote-debug", "-k", "far and not near", *own)
    text = [line for line in result.stdout.lines if line.startswith("remote debug: +")]
    times = [float(re.match(r"remote debug: \+([\d.]+) s", line)[1]) for line in text]  # type: ignore[index]
    assert times == sorted(times)
    assert f"{sys.executable} -P -m pytest_remotegpu.worker" in text[0]
    assert "runs there: pytest " in text[1]
    assert "--remote=local:cpu --remote-fresh --remote-debug -k 'far and not near'" in text[1]
    words = [re.split("[(:]", line.partition(" s  local-1: ")[2])[0] for line in text[2:]]
    said = [word for word in words if word != "runs there"]
    collected = ["StretchEnded", "1 tests on 1 GPU"] if collects == "far" else []
    assert said == ["Hello", "Collected", *collected, "StretchEnded", "Ended", "Lost"]
    assert ("local-1: collection on 1 GPU: " in text[0]) == (collects == "far")


def test_no_line_is_glued_to_dots(pytester: pytest.Pytester) -> None:
    """Whoever reads line by line, as editors do, finds each line whole."""
    pytester.makepyfile(
        """
        import pytest

        def test_here():
            pass

        @pytest.mark.gpu
        def test_far():
            pass
        """
    )
    result = run(pytester, CPU, "--remote-fresh", "--remote-debug", "-q")
    lines = result.stdout.lines
    assert "." in lines
    assert sum("remote debug: " in line for line in lines) >= 7
    assert all(line.startswith("remote debug: ") for line in lines if "remote debug: " in line)
