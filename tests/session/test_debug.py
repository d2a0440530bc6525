"""What ``--remote-debug`` shows: how a worker is started, what runs there, and when."""

from __future__ import annotations

import re
import sys

import pytest

from .running import CPU, run


def test_timeline_with_commands(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.gpu
        def test_far():
            pass
        """
    )
    result = run(pytester, CPU, "--remote-debug", "-k", "far and not near")
    text = [line for line in result.stdout.lines if line.startswith("remote debug: +")]
    times = [float(re.match(r"remote debug: \+([\d.]+) s", line)[1]) for line in text]  # type: ignore[index]
    assert times == sorted(times)
    assert f"{sys.executable} -P -m pytest_remotegpu.worker" in text[0]
    assert "runs there: pytest " in text[1]
    assert "--remote=local:cpu --remote-debug -k 'far and not near'" in text[1]
    said = [re.search(r"local-1: (\w+)\(", line)[1] for line in text[2:]]  # type: ignore[index]
    assert said == ["Hello", "Collected", "StretchEnded", "Ended", "Lost"]
