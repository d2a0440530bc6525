"""The README's recording: the script works, and what is shown is what it would make now.

Knows the script by what it writes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is made on Linux")

ROOT = Path(__file__).parents[1]
SHOWN = ROOT / "docs" / "session.svg"
SVG = "{http://www.w3.org/2000/svg}"


def record(*arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    pytest.importorskip("pyte", reason="pyte is not installed")
    return subprocess.run(
        [sys.executable, ROOT / ".ci" / "record.py", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, **environ},
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record a session."""
    path = tmp_path_factory.mktemp("recording") / "session.svg"
    done = record(path)
    assert (done.returncode, done.stderr) == (0, "")
    return path


def lines(path: Path) -> list[str]:
    """Give the lines of the last frame, but for numbers, rules, and the order of tests."""
    text = ET.parse(path).findtext(f"{SVG}desc")  # noqa: S314 -- ours
    assert text is not None
    plain = (re.sub(r"\d+(\.\d+)*", "0", line) for line in text.splitlines())
    return sorted(re.sub(r"[= ]+", " ", line) for line in plain)


def test_what_the_readme_shows_is_what_a_session_says_now(made: Path) -> None:
    assert "](docs/session.svg)\n" in (ROOT / "README.md").read_text("utf-8")
    assert lines(SHOWN) == lines(made)
    assert " 0 passed in 0s " in lines(made)
    assert any("remote: 0 tests on 0 GPU" in line for line in lines(made))


@pytest.mark.parametrize("which", ["made", "shown"])
def test_picture_is_whole(which: str, made: Path) -> None:
    path = {"made": made, "shown": SHOWN}[which]
    root = ET.parse(path).getroot()  # noqa: S314 -- ours
    tall = int(root.attrib["height"])
    known = {each.attrib["id"] for each in root.iter(f"{SVG}g") if "id" in each.attrib}
    used = [(each.attrib["href"][1:], int(each.attrib["y"])) for each in root.iter(f"{SVG}use")]
    assert {name for name, _ in used} == known
    style = root.findtext(f"{SVG}style") or ""
    moments = re.findall(r"([\d.]+)% { transform: translateY\((-?\d+)px\) }", style)
    starts = [float(moment) for moment, _ in moments]
    assert starts == sorted(starts)
    assert starts[0] == 0
    assert starts[-1] < 100
    assert [int(place) for _, place in moments] == [-tall * each for each in range(len(moments))]
    assert len(moments) > 10  # it moves
    assert all(y < tall * len(moments) for _, y in used)
    assert f"translateY({moments[-1][1]}px) }} }}" in style  # for who wants no motion


@pytest.mark.parametrize("which", ["made", "shown"])
def test_picture_loads_nothing_and_names_no_machine(which: str, made: Path) -> None:
    text = {"made": made, "shown": SHOWN}[which].read_text("utf-8")
    assert set(re.findall(r"<([a-z]+)", text)) == {
        *("svg", "title", "desc", "style", "defs", "g", "text", "rect", "use")
    }
    assert set(re.findall(r"\w+://[^\"\s]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "/tmp" not in text  # noqa: S108 -- where sessions are recorded
    assert str(Path.home()) + "/" not in text
    assert sys.prefix not in text
    assert len(text) < 60_000


def test_session_that_fails_is_no_recording(tmp_path: Path) -> None:
    code = "import os\nif 'PYTEST_PLUGINS' in os.environ: os._exit(3)\n"
    (tmp_path / "sitecustomize.py").write_text(code, encoding="utf-8")
    done = record(tmp_path / "out.svg", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "the session ended with 3" in done.stderr
    assert not (tmp_path / "out.svg").exists()


@pytest.mark.parametrize("arguments", [("a", "b"), ("--help",)])
def test_wrong_call_says_how(arguments: tuple[str, ...]) -> None:
    done = record(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: " in done.stderr
