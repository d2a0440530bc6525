"""Ends before the end: Ctrl-C, signals, crashes, ``pytest.exit``, conftests that fail only there.

What arrived is kept, nothing is left running, and each test has the outcome that it deserves.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from .running import CPU, LONG, Started, run, said, until

WITH_LOCAL = (
    LONG
    + """
    def test_here():
        while not pathlib.Path("has-begun").exists():
            time.sleep(0.02)
"""
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


def begun(pytester: pytest.Pytester, *args: str) -> Started:
    """Start a session and wait until its long test runs."""
    pytester.makepyfile(test_it=WITH_LOCAL)
    session = Started(pytester, CPU, "--remote-fresh", "-v", *args)
    assert until((pytester.path / "has-begun").exists), session.text
    return session


@linux
def test_ctrl_c_keeps_what_arrived_and_tears_down(pytester: pytest.Pytester) -> None:
    with begun(pytester) as session:
        session.wait_for("::test_here PASSED")
        session.wait_for("::test_before PASSED")
        session.process.send_signal(signal.SIGINT)
        asked = time.monotonic()
        assert session.end() == pytest.ExitCode.INTERRUPTED
        assert time.monotonic() - asked < 12
        assert session.living() == []
        text = session.text
    assert "INTERNALERROR" not in text
    assert "::test_before PASSED" in text
    assert "::test_after" not in text
    assert "KeyboardInterrupt" in text
    assert re.search(r"2 passed in", text)
    assert (pytester.path / "torn-down").exists()


def test_ctrl_c_in_the_midst_of_news_loses_none_of_it(pytester: pytest.Pytester) -> None:
    """The signal comes while the first report is taken in, and others are on their way."""
    pytester.makeconftest("""
        import os
        import pathlib
        import signal
        import time

        def pytest_report_from_serializable(config, data):
            if "REMOTEGPU_WORKER" not in os.environ and not hasattr(config, "done"):
                config.done = True
                while not pathlib.Path("third").exists():
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGINT)
    """)
    pytester.makepyfile(
        test_it="""
        import pathlib
        import pytest

        @pytest.mark.gpu
        @pytest.mark.parametrize("n", range(3))
        def test_quick(n):
            if n == 2:
                pathlib.Path("third").touch()
    """
    )
    result = run(pytester, CPU, "-v")
    text = said(result)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "::test_quick[0] PASSED" in text
    assert "::test_quick[1] PASSED" in text
    assert "failed" not in result.outlines[-1]
    assert "error" not in result.outlines[-1]


DEAF = """
    import pathlib
    import signal
    import subprocess
    import time
    import pytest

    @pytest.mark.gpu
    def test_deaf():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "60"], start_new_session=True)
        pathlib.Path("has-begun").touch()
        time.sleep(60)
"""


@linux
@pytest.mark.parametrize(("times", "seconds"), [(1, 15), (2, 5)])
def test_ctrl_c_for_a_test_that_will_not_stop(
    times: int, seconds: int, pytester: pytest.Pytester
) -> None:
    """Once waits for the grace, twice does not; neither leaves a process behind."""
    pytester.makepyfile(test_it=DEAF)
    with Started(pytester, CPU, "--remote-fresh") as session:
        assert until((pytester.path / "has-begun").exists)
        for _ in range(times):
            time.sleep(0.5)
            session.process.send_signal(signal.SIGINT)
        asked = time.monotonic()
        assert session.end() == pytest.ExitCode.INTERRUPTED
        assert time.monotonic() - asked < seconds
        assert until(lambda: not session.living(), 5)


@linux
@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_a_session_that_is_killed_leaves_nothing_behind(
    name: str, pytester: pytest.Pytester
) -> None:
    with begun(pytester) as session:
        assert len(session.living()) > 2
        session.process.send_signal(signal.Signals[name])
        assert session.end() != pytest.ExitCode.OK
        assert until(lambda: not session.living(), 5), session.living()


def kept(pytester: pytest.Pytester, text: str) -> None:
    """See that a session of the long tests was ended well in the midst of the second."""
    assert "INTERNALERROR" not in text
    assert "remote summary" in text
    assert re.search(r"2 passed in", text)
    written = (pytester.path / "j.xml").read_text()
    assert re.findall(r'testcase classname="test_it" name="(\w+)"', written) == [
        "test_here",
        "test_before",
    ]
    assert (pytester.path / "torn-down").exists()


@linux
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_session_that_is_told_to_end_does_so_as_after_ctrl_c(
    name: str, pytester: pytest.Pytester
) -> None:
    """A CI runner that cancels a job, or a shell that ends, still gets the reports."""
    with begun(pytester, "--junitxml=j.xml") as session:
        session.wait_for("::test_here PASSED")
        session.wait_for("::test_before PASSED")
        session.process.send_signal(signal.Signals[name])
        assert session.end() == pytest.ExitCode.INTERRUPTED
        assert session.living() == []
        text = session.text
    kept(pytester, text)
    assert f"KeyboardInterrupt: {name}" in text


@linux
def test_a_second_sigterm_ends_at_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=DEAF)
    with Started(pytester, CPU, "--remote-fresh") as session:
        assert until((pytester.path / "has-begun").exists)
        session.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        session.process.send_signal(signal.SIGTERM)
        asked = time.monotonic()
        assert session.end() in (pytest.ExitCode.INTERRUPTED, -signal.SIGTERM)
        assert time.monotonic() - asked < 4
        assert until(lambda: not session.living(), 5)


@contextlib.contextmanager
def on_a_terminal(pytester: pytest.Pytester) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """Start a session on a terminal of its own; give it and both ends of that."""
    ours, theirs = os.openpty()
    arguments = [CPU, "--remote-fresh", "-v", "--junitxml=j.xml"]
    command = shlex.join([sys.executable, "-m", "pytest", *arguments])
    # the first terminal that a session of processes opens is the one that hangs up on it
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {command} <>{os.ttyname(theirs)} >&0 2>&0"],
        cwd=pytester.path,
        start_new_session=True,
    )
    try:
        yield process, ours, theirs
    finally:
        process.kill()
        process.wait()


@linux
def test_a_terminal_that_is_closed_takes_no_report_along(pytester: pytest.Pytester) -> None:
    """Nothing can be written to it any more; the files are written all the same."""
    pytester.makepyfile(test_it=WITH_LOCAL)
    text = b""
    with on_a_terminal(pytester) as (process, ours, theirs):
        while b"::test_before" not in text or b"::test_here" not in text:
            text += os.read(ours, 2**16)
        assert until((pytester.path / "has-begun").exists)
        os.close(theirs)
        os.close(ours)
        assert process.wait(30) == pytest.ExitCode.INTERRUPTED
    kept(pytester, "remote summary 2 passed in")


@linux
@pytest.mark.parametrize("where", ["far", "here"])
def test_a_write_that_fails_before_the_signal_comes(where: str, pytester: pytest.Pytester) -> None:
    """The signal is blocked, so that only the refused write can tell that the terminal is gone."""
    pytester.makeconftest("""
        import os
        import pathlib
        import signal
        import time

        if "REMOTEGPU_WORKER" not in os.environ:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])

        def pytest_runtest_logstart(nodeid, location):
            if "REMOTEGPU_WORKER" not in os.environ and "test_shown" in nodeid:
                pathlib.Path("has-begun").touch()
                while not pathlib.Path("closed").exists():
                    time.sleep(0.02)
    """)
    pytester.makepyfile(
        test_it=f"""
            import pytest

            {"@pytest.mark.gpu" if where == "far" else ""}
            def test_shown(): pass

            @pytest.mark.gpu
            def test_far(): pass
        """
    )
    with on_a_terminal(pytester) as (process, ours, theirs):
        assert until((pytester.path / "has-begun").exists)
        os.close(theirs)
        os.close(ours)
        (pytester.path / "closed").touch()
        assert process.wait(30) == pytest.ExitCode.INTERRUPTED
    written = (pytester.path / "j.xml").read_text()
    assert ('name="test_shown"' in written) == (where == "far")  # the other one has not run yet
    assert "<error" not in written


CRASHES = """
    import ctypes
    import os
    import signal
    import sys
    import pytest

    pytestmark = pytest.mark.gpu

    def ran(name):
        with open("ran.txt", "a") as file:
            print(name, file=file)

    def test_first(): ran("first")

    def test_segv():
        ran("segv")
        print("before the crash")
        os.write(2, b"written past capture\\n")
        ctypes.string_at(0)

    def test_exit():
        ran("exit")
        print("leaving quietly")
        os._exit(0)

    def test_kill():
        ran("kill")
        os.kill(os.getpid(), signal.SIGKILL)

    @pytest.mark.xfail(reason="crashes now and then")
    def test_xfail():
        ran("xfail")
        os._exit(0)

    @pytest.fixture
    def bad_end():
        yield
        ran("teardown")
        os._exit(4)

    def test_teardown(bad_end): ran("body")

    @pytest.fixture
    def bad_start():
        ran("setup")
        os.abort()

    def test_setup(bad_start): ran("never")

    def test_last(): ran("last")
"""


def test_a_crash_fails_its_test_once_and_the_rest_goes_on(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=CRASHES)
    result = pytester.runpytest_inprocess(CPU, "-v", "--junitxml=j.xml")
    text = said(result)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert re.search(r"[56] failed, 3 passed, [12] errors? in", text)
    ran = pytester.path.joinpath("ran.txt").read_text().split()
    assert ran == ["first", "segv", "exit", "kill", "xfail", "body", "teardown", "setup", "last"]
    title = r"^_+ ((?:ERROR at \w+ of )?test_\w+) _+$"
    part = dict(re.findall(title + r"(.*?)(?=^[_=]{5})", text, re.MULTILINE | re.DOTALL))
    assert "SIGSEGV" in part["test_segv"]
    assert "test_it.py" in part["test_segv"]
    assert "in test_segv" in part["test_segv"]
    assert "before the crash" in part["test_segv"]
    assert "written past capture" in part["test_segv"]
    assert "exit status 0" in part["test_exit"]
    assert "leaving quietly" in part["test_exit"]
    assert "SIGKILL" in part["test_kill"]
    assert "memory" in part["test_kill"]
    assert "exit status 0" in part["test_xfail"]
    assert "exit status 4" in part["ERROR at teardown of test_teardown"]
    assert "SIGABRT" in (part.get("test_setup") or part["ERROR at setup of test_setup"])
    for name in ("test_segv", "test_exit", "test_kill", "test_xfail"):
        assert len(re.findall(rf"::{name} FAILED", text)) == 1
    for name in ("test_first", "test_last", "test_teardown"):
        assert f"::{name} PASSED" in text


@pytest.mark.parametrize(("collects", "errors"), [("far", 1), ("here", 3 + 1)])
def test_a_crash_at_import_is_bounded_and_the_rest_goes_on(
    pytester: pytest.Pytester, collects: str, errors: int
) -> None:
    """The file is an error, and each of its tests that this side knows."""
    pytester.makepyfile(
        test_bad="""
            import ctypes
            import os
            import pathlib
            import pytest

            if "REMOTEGPU_WORKER" in os.environ:
                with pathlib.Path("imports.txt").open("a") as file:
                    print("import", file=file)
                ctypes.string_at(0)

            @pytest.mark.gpu
            @pytest.mark.parametrize("n", range(3))
            def test_never(n): pass
        """,
        test_good="""
            import pytest

            @pytest.mark.gpu(2)
            def test_far(): pass

            def test_here(): pass
        """,
    )
    goes_on = "--continue-on-collection-errors"
    result = run(pytester, CPU, "-rA", "-o", f"remotegpu_collect={collects}", goes_on)
    text = said(result)
    assert result.ret == (pytest.ExitCode.INTERRUPTED if collects == "here" else 1)
    result.assert_outcomes(passed=2, errors=errors)
    assert text.count("SIGSEGV") >= 1
    assert len(pytester.path.joinpath("imports.txt").read_text().split()) <= 3


@pytest.mark.parametrize("mixed", [False, True])
def test_a_conftest_that_fails_only_there(mixed: bool, pytester: pytest.Pytester) -> None:
    """Status 4 as in plain pytest, unless local tests have run: then it is a collection error."""
    pytester.makeconftest("""
        import os

        def helper():
            raise RuntimeError("host-only breakage")

        if "REMOTEGPU_WORKER" in os.environ:
            helper()
    """)
    pytester.makepyfile(test_far="import pytest\n@pytest.mark.gpu\ndef test_far(): pass\n")
    if mixed:
        pytester.makepyfile(test_here="def test_here(): pass")
    result = pytester.runpytest_inprocess(CPU)
    text = said(result)
    assert result.ret in ({2, 4} if mixed else {4})
    assert "RuntimeError: host-only breakage" in text
    assert re.search(r"conftest\.py:\d+: in helper|conftest.py.*line \d+, in helper", text)
    assert "test_far.py::test_far PASSED" not in text
    assert "Traceback" not in result.stderr.str()


ENDINGS = """
    import pathlib
    import time
    import pytest

    def test_here(): pass

    @pytest.mark.gpu
    def test_before(): pass

    @pytest.mark.gpu
    def test_ends():
        {how}

    @pytest.mark.gpu
    def test_after(): pathlib.Path("after.ran").touch()
"""


@pytest.mark.parametrize(
    ("how", "status", "named"),
    [
        ("pytest.exit('that is enough', returncode=7)", 7, "that is enough"),
        ("raise KeyboardInterrupt", 2, "KeyboardInterrupt"),
    ],
    ids=["pytest.exit", "KeyboardInterrupt"],
)
def test_a_test_that_ends_the_session(
    how: str, status: int, named: str, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(ENDINGS.format(how=how))
    result = run(pytester, CPU)
    assert result.ret == status
    text = said(result)
    assert named in text
    assert "2 passed" in text
    assert "failed" not in result.outlines[-1]
    assert not pytester.path.joinpath("after.ran").exists()


def test_a_breakpoint_is_a_clear_failure_and_no_hang(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pdb
        import sys
        import pytest

        pytestmark = pytest.mark.gpu

        def test_breakpoint(): breakpoint()
        def test_stdin(): assert sys.stdin.read() == ""
        def test_after(): pass
    """)
    result = pytester.runpytest_inprocess(CPU, "-s")
    text = said(result)
    result.assert_outcomes(passed=2, failed=1)
    assert "breakpoint() in a shipped test" in text
    assert "without --remote" in text
