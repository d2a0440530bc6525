"""How far large artifacts have come: a line that moves on a terminal, and a few lines in a log."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys

import pytest

from pytest_remotegpu.incoming import EACH, FIRST, LARGE, Incoming, line

from .running import CPU, run, said

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
LARGE_ONE = """
    import pytest

    @pytest.mark.gpu
    @pytest.mark.parametrize("n", range(2))
    def test_leaves(n, artifacts_dir):
        (artifacts_dir / "small").write_bytes(b"1")
        (artifacts_dir / "large").write_bytes(bytes({size}))

    def test_here(): pass
"""
MOVING = re.compile(r"\rremote: artifacts of \S+ \[#*\.*\] \d+\.\d of \d+\.\d MiB \(\d+ %\)")


def on_a_terminal(pytester: pytest.Pytester, *args: str, **environ: str) -> str:
    """Give all that pytest writes to a terminal of 100 columns."""
    fd, theirs = os.openpty()
    variables = {name: value for name, value in os.environ.items() if name != "CI"}
    variables |= {"COLUMNS": "100", "TERM": "xterm", "PY_COLORS": "0", **environ}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", CPU, *args],
        cwd=pytester.path,
        env=variables,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    text = b""
    while select.select([fd], [], [], 40.0)[0]:
        try:
            data = os.read(fd, 2**16)
        except OSError:
            break
        if not data:
            break
        text += data
    os.close(fd)
    assert process.wait(10) == 0, text.decode()
    return text.decode()


def screen(text: str) -> list[str]:
    """Give the lines that are seen at the end."""
    lines = []
    for each in text.replace("\r\n", "\n").split("\n"):
        shown = ""
        for stroke in each.split("\r"):
            shown = stroke.partition("\x1b[K")[0] if "\x1b[K" in stroke else stroke or shown
        lines.append(shown)
    return lines


@pytest.mark.parametrize("more", [["-v"], [], ["-q"], ["-s"]], ids=str)
def test_a_line_moves_and_leaves_no_trace(pytester: pytest.Pytester, more: list[str]) -> None:
    pytester.makepyfile(test_it=LARGE_ONE.format(size=96 * 2**20))
    text = on_a_terminal(pytester, *more)
    assert MOVING.search(text), text
    assert all(len(part) < 100 for part in re.findall(r"\r(remote: artifacts[^\x1b]*)", text))
    seen = screen(text)
    assert not [each for each in seen if "artifacts of" in each], text
    if more == ["-v"]:
        passed = [
            each for each in seen if re.match(r"test_it.py::test_\w+(\[\d\])? PASSED +\[", each)
        ]
        assert len(passed) == 3, seen
    assert re.search(r"3 passed in \d", seen[-2] + seen[-1])


def test_nothing_moves_for_small_ones(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=LARGE_ONE.format(size=LARGE // 2))
    assert "artifacts of" not in on_a_terminal(pytester)


@pytest.mark.parametrize("environ", [{"CI": "true"}, {"TERM": "dumb"}], ids=str)
def test_nothing_moves_where_nobody_looks_on(
    pytester: pytest.Pytester, environ: dict[str, str]
) -> None:
    pytester.makepyfile(test_it=LARGE_ONE.format(size=32 * 2**20))
    assert "\rremote" not in on_a_terminal(pytester, **environ)


def test_a_pipe_has_no_strokes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=LARGE_ONE.format(size=32 * 2**20))
    text = said(run(pytester, CPU))
    assert "\r" not in text.replace("\r\n", "")
    assert "\x1b[K" not in text


# --- a log


@pytest.mark.parametrize("more", [[], ["-q"]])
def test_a_log_has_a_line_now_and_then(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    now = 0.0
    config = pytester.parseconfigure(*more)
    incoming = Incoming(config, lambda: now)
    size, left = 2**20, 200 * 2**20
    for second in range(100):
        now = float(second)
        left -= size
        incoming.take("w", "t.py::test_a", size, left)
    text = capsys.readouterr().out
    found = re.findall(
        r"^remote: artifacts of t.py::test_a: (\d+)\.0 of 200\.0 MiB .*$", text, re.MULTILINE
    )
    seconds = [FIRST, FIRST + EACH, FIRST + 2 * EACH, FIRST + 3 * EACH]
    assert found == ([] if more else [f"{int(at) + 1}" for at in seconds])


# --- the line itself


@pytest.mark.parametrize("width", [0, 79, 100, 200])
def test_the_line_says_what_has_come(width: int) -> None:
    text = line("tests/test_a.py::test_b", 3 * 2**29, 2 * 2**30, 3.0, width)
    assert "1.5 of 2.0 GiB (75 %), 512.0 MiB/s" in text
    assert "\n" not in text
    if width:
        assert "[#########...]" in text
        assert len(text) <= width


def test_a_long_name_keeps_its_end() -> None:
    text = line(f"{'x' * 200}::test_b", 2**22, 2**24, 0.0, 100)
    assert "::test_b [" in text
    assert len(text) <= 100
    assert text.endswith("[###.........] 4.0 of 16.0 MiB (25 %)")
