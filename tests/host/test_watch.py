"""``--remote-watch``: real sessions, real saves, and Ctrl-C."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from session.running import CPU, LONG, Started, run, said, until
from warmth import Warmth

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals as Unix has them"),
    pytest.mark.timeout(300),
]
pytest.importorskip("watchfiles", reason="needs: pip install pytest-remotegpu[watch]")

ARGS = (CPU, "--remote-watch", "-p", "no:cacheprovider", "-q", "-rA")
WAITING = "watch: waiting for changes, Ctrl-C ends"
FILES = {
    "kernel.py": "def two(): return 2\n",
    "test_a.py": """
import pytest
import kernel

@pytest.mark.gpu
def test_two(): assert kernel.two() == 2

def test_here(): pass
""",
    "test_b.py": """
import pytest

@pytest.mark.gpu
def test_b(): pass
""",
}


class Watched:
    """A loop that runs, and the folder in which a test saves files."""

    def __init__(self, started: Started, folder: Path) -> None:
        self.started = started
        self.folder = folder
        self._seen = 0

    def settles(self) -> str:
        """Wait until it waits for changes; give what it has written since it did so last."""
        assert until(lambda: self._rest().count(WAITING) or self._is_over(), 120), self._rest()
        text = self._rest()
        assert WAITING in text, text
        self._seen += text.index("\n", text.index(WAITING)) + 1
        return text[: text.index(WAITING)]

    def writes(self, text: str) -> None:
        """Wait until it has written a text since it waited last."""
        assert until(lambda: text in self._rest() or self._is_over(), 120)
        assert text in self._rest(), self._rest()

    def _rest(self) -> str:
        text = self.started.text[self._seen :]
        # a line counts once it is whole
        return text[: text.rfind("\n") + 1]

    def _is_over(self) -> bool:
        return self.started.process.poll() is not None

    def saves(self, name: str, text: str) -> None:
        """Save a file as most editors do: a new one beside it takes its place."""
        draft = self.folder / f".{name}.draft"
        draft.write_text(text)
        draft.replace(self.folder / name)

    def ends(self, number: int = signal.SIGINT, *, others: bool = True) -> int:
        """End it; give its exit status. All its processes have to end, or but for the warm one."""
        self.started.process.send_signal(number)
        assert until(self._is_over, 60)
        status = self.started.end()
        assert not others or until(lambda: not self._others(), 30), self._others()
        return status

    def _others(self) -> list[int]:
        return self.started.living()


Start = Callable[..., Watched]


@pytest.fixture
def start(pytester: pytest.Pytester) -> Iterator[Start]:
    """Give what starts a loop over some files."""
    loops: list[Started] = []

    def begin(*args: str, files: dict[str, str] = FILES) -> Watched:
        for name, text in files.items():
            path = pytester.path / name
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(text)
        loops.append(Started(pytester, *ARGS, *args))
        return Watched(loops[-1], pytester.path)

    yield begin
    for loop in loops:
        loop.close()


def passed(text: str) -> list[str]:
    """List the tests that passed, in order, each run's by itself."""
    return [line.removeprefix("PASSED ") for line in text.splitlines() if line[:7] == "PASSED "]


def breaks(loop: Watched) -> None:
    """Break what one file needs, then change the other: failures come first, and alone."""
    loop.saves("kernel.py", "def two(): return 3\n")
    broken = loop.settles()
    assert "watch: kernel.py changed: test_a.py\n" in broken
    assert "FAILED test_a.py::test_two" in broken
    assert "test_b" not in broken
    loop.saves("test_b.py", FILES["test_b.py"] + "# a word\n")
    still = loop.settles()
    assert "watch: test_b.py changed: 1 that failed, then test_b.py\n" in still
    assert "FAILED test_a.py::test_two" in still
    assert passed(still) == []


def test_a_change_reruns_what_it_affects_and_failures_first(start: Start) -> None:
    loop = start()
    first = loop.settles()
    assert sorted(passed(first)) == [
        "test_a.py::test_here",
        "test_a.py::test_two",
        "test_b.py::test_b",
    ]
    breaks(loop)
    loop.saves("kernel.py", "def two(): return 1 + 1\n")
    mended = loop.settles()
    assert passed(mended) == ["test_a.py::test_two", "test_a.py::test_here"]
    assert loop.ends() == 0


def test_the_status_is_red_while_a_test_fails(start: Start) -> None:
    loop = start(files=FILES | {"kernel.py": "def two(): return 3\n"})
    assert "1 failed" in loop.settles()
    assert loop.ends() == 1


def test_new_renamed_and_deleted_files(start: Start) -> None:
    loop = start()
    loop.settles()
    loop.saves("test_c.py", "def test_c(): pass\n")
    assert "test_c.py changed: all tests" in (text := loop.settles())
    assert "test_c.py::test_c" in passed(text)
    (loop.folder / "test_c.py").rename(loop.folder / "test_d.py")
    text = loop.settles()
    assert "test_c.py, test_d.py changed: all tests" in text
    assert "test_d.py::test_c" in passed(text)
    (loop.folder / "test_d.py").unlink()
    assert loop.settles() == "watch: test_d.py changed: nothing to run\n"
    (loop.folder / "kernel.py").unlink()
    text = loop.settles()
    assert "watch: kernel.py changed: test_a.py\n" in text
    assert "ModuleNotFoundError" in text
    loop.saves("kernel.py", "def two(): return 2\n")
    text = loop.settles()
    assert "1 that failed, then test_a.py" in text
    assert set(passed(text)) == {"test_a.py::test_two", "test_a.py::test_here"}
    assert loop.ends() == 0


def test_conftests_settings_and_data(start: Start) -> None:
    more = {"sub/conftest.py": "", "sub/test_sub.py": "def test_sub(): pass\n", "data.json": "{}"}
    loop = start(files=FILES | more)
    loop.settles()
    loop.saves("sub/conftest.py".replace("sub/", ""), "")  # above all, and new
    assert "watch: conftest.py changed: " in (text := loop.settles())
    assert len(passed(text)) == 4
    (loop.folder / "sub" / "conftest.py").write_text("VALUE = 1\n")
    assert "watch: sub/conftest.py changed: sub/test_sub.py\n" in (text := loop.settles())
    assert passed(text) == ["sub/test_sub.py::test_sub"]
    loop.saves("data.json", "[]")
    assert "watch: data.json changed: all tests\n" in (text := loop.settles())
    assert len(passed(text)) == 4
    assert loop.ends() == 0


def test_what_nobody_means_starts_nothing(start: Start) -> None:
    files = {
        ".gitignore": "ignored/\n",
        "ignored/x.py": "",
        "test_w.py": """
import time
def test_writes():
    with open("written.txt", "a") as file:
        file.write(f"{time.time()}\\n")
""",
    }
    loop = start("--junitxml=report.xml", files=FILES | files)
    subprocess.run([shutil.which("git") or "git", "init", "-q"], cwd=loop.folder, check=True)
    loop.settles()
    # the file that the test has written was new then, and is no reason to run
    for name in ("ignored/x.py", "test_a.py~", ".test_a.py.swp", "4913"):
        (loop.folder / name).write_text("# other\n")
    (loop.folder / "test_b.py").write_text(FILES["test_b.py"])  # the same again
    loop.saves("test_w.py", files["test_w.py"] + "# a word\n")
    text = loop.settles()
    while "test_w.py changed" not in text:
        assert "ignored from now on" in text
        text = loop.settles()
    assert "test_w.py changed: test_w.py\n" in text
    assert passed(text) == ["test_w.py::test_writes"]
    assert loop.ends() == 0
    assert (loop.folder / "written.txt").read_text().count("\n") == 2


def test_a_save_while_tests_run_is_followed_by_a_run(start: Start) -> None:
    slow = """
import pathlib, time, pytest
@pytest.mark.gpu
def test_slow():
    pathlib.Path("has-begun.log").touch()
    for _ in range(2000):
        if pathlib.Path("go-on.log").exists():
            break
        time.sleep(0.02)
"""
    loop = start(files=FILES | {"test_slow.py": slow})
    assert until((loop.folder / "has-begun.log").exists)
    loop.saves("test_b.py", FILES["test_b.py"].replace("def test_b", "def test_new"))
    (loop.folder / "go-on.log").touch()
    text = loop.settles()
    while "changed" not in text:
        text += loop.settles()
    assert "watch: test_b.py changed: test_b.py\n" in text
    assert passed(text)[-1] == "test_b.py::test_new"
    assert loop.ends() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_while_tests_run_ends_the_far_side(start: Start, number: int) -> None:
    loop = start(files={"test_long.py": LONG.replace("\n    ", "\n")})
    assert until((loop.folder / "has-begun").exists)
    began = time.monotonic()
    assert loop.ends(number) == 2
    assert time.monotonic() - began < 30
    assert (loop.folder / "torn-down").exists()


def test_a_file_that_is_no_python_yet(start: Start) -> None:
    loop = start()
    loop.settles()
    loop.saves("kernel.py", "def two(: return 3\n")
    assert "SyntaxError" in loop.settles()
    loop.saves("kernel.py", "def two(): return 2.0\n")
    assert "test_a.py::test_two" in passed(loop.settles())
    assert loop.ends() == 0


def test_the_cap_counts_over_the_whole_loop(start: Start) -> None:
    ini = "[pytest]\nremotegpu_prices =\n    local:cpu = 3600\n"
    slow = "import time, pytest\n@pytest.mark.gpu\ndef test_slow(): time.sleep(2)\n"
    files = {"pytest.ini": ini, "test_slow.py": slow}
    loop = start("--remote-max-cost=30", "--remote-run-timeout=20", files=files)
    text = loop.settles()
    assert "of at most $28.00" in text
    assert passed(text) == ["test_slow.py::test_slow"]
    loop.saves("test_slow.py", f"{slow}# a word\n")
    assert until(lambda: loop.started.process.poll() is not None, 60)
    assert loop.started.end() == 4
    last = loop.started.text.partition("test_slow.py changed")[2]
    assert "--remote-max-cost=2" in last
    assert "watch: --remote-max-cost=30 is reached: $" in last


def test_what_is_warm_stays_so_between_runs(
    start: Start, warm_home: Warmth, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI")
    loop = start()
    loop.settles()
    loop.saves("kernel.py", "def two(): return 2.0\n")
    loop.settles()
    known = set(warm_home.zygotes())
    loop.saves("kernel.py", "def two(): return 1 + 1\n")
    assert "test_a.py::test_two" in passed(loop.settles())
    assert known
    assert set(warm_home.zygotes()) <= known
    assert loop.ends(others=False) == 0


def test_processes_of_xdist(start: Start) -> None:
    loop = start("-n", "2")
    assert len(passed(loop.settles())) == 3
    loop.saves("kernel.py", "def two(): return 3\n")
    assert "FAILED test_a.py::test_two" in loop.settles()
    loop.saves("kernel.py", "def two(): return 2.0\n")
    assert passed(loop.settles())[:1] == ["test_a.py::test_two"]
    assert loop.ends() == 0


def test_one_test_by_its_id(start: Start) -> None:
    loop = start("test_a.py::test_two", "test_b.py")
    assert len(passed(loop.settles())) == 2
    loop.saves("kernel.py", "def two(): return 2.0\n")
    assert passed(loop.settles()) == ["test_a.py::test_two"]
    assert loop.ends() == 0


# collected on the far side


ONLY_THERE = """
import os
import pytest

if "REMOTEGPU_WORKER" not in os.environ:
    raise ImportError("this side has no torch")

import kernel

@pytest.mark.gpu
def test_two(): assert kernel.two() == 2

@pytest.mark.gpu
def test_more(): pass
"""
THERE = ("-o", "remotegpu_collect=far")


def test_files_that_are_collected_there(start: Start) -> None:
    loop = start(*THERE, files=FILES | {"test_a.py": ONLY_THERE})
    assert sorted(passed(loop.settles())) == [
        "test_a.py::test_more",
        "test_a.py::test_two",
        "test_b.py::test_b",
    ]
    breaks(loop)
    loop.saves("test_a.py", "a slip\n")
    assert "SyntaxError" in loop.settles()
    loop.saves("kernel.py", FILES["kernel.py"])
    loop.settles()
    loop.saves("test_a.py", ONLY_THERE)
    mended = loop.settles()
    assert set(passed(mended)) == {"test_a.py::test_two", "test_a.py::test_more"}
    assert loop.ends() == 0


def test_an_end_while_files_are_collected_there_ends_the_far_side(start: Start) -> None:
    slow = "import time\n(open('begun', 'w').close(), time.sleep(600))\n" + ONLY_THERE
    loop = start(
        *THERE,
        "--remote-fresh",
        files=FILES
        | {
            "test_a.py": slow.replace("import time", "import os, time", 1).replace(
                "(open", "'REMOTEGPU_WORKER' in os.environ and (open", 1
            )
        },
    )
    assert until((loop.folder / "begun").exists, 60)
    assert loop.ends() != 0


# refused


def test_without_the_library(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile("def test_it(): pass")
    folder = pytester.mkdir("hides")
    (folder / "watchfiles.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    result = run(pytester, *ARGS)
    assert result.ret == 4
    assert "pip install 'pytest-remotegpu[watch]'" in said(result)


@pytest.mark.parametrize(
    "option", ["--collect-only", "--pdb", "--remote-plan", "--remote-rev=HEAD"]
)
def test_what_does_not_go_together(pytester: pytest.Pytester, option: str) -> None:
    pytester.makepyfile("def test_it(): pass")
    result = run(pytester, *ARGS, option)
    assert result.ret == 4
    assert f"--remote-watch and {option.partition('=')[0]} do not go together" in said(result)


def test_a_usage_error_ends_it_at_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    result = run(pytester, "--remote=nowhere", *ARGS[1:])
    assert result.ret == 4
    assert "nowhere" in said(result)
