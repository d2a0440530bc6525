"""The end of a far session: what fails there must not be green here, and names its cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from session.running import CPU, run, said, until
from warmth import alive

TESTS = """
    import pytest

    @pytest.fixture
    def held():
        import conftest
        conftest.leaks.append(1)
        yield

    @pytest.mark.gpu
    def test_far(held):
        pass
"""

ENDS = {
    "raises": ("raise RuntimeError('leak')", 1, "RuntimeError: leak"),
    "sets the status": ("session.exitstatus = 7", 7, "from 0 to 7"),
    "exits": ("pytest.exit('leak', 9)", 9, "from 0 to 9"),
    "ends the process": ("os._exit(0)", 1, "did not come to its end"),
    "kills its worker": ("kill_worker()", 1, "was lost before it said how its session ended"),
}


@pytest.mark.parametrize(("ending", "status", "cause"), ENDS.values(), ids=ENDS)
def test_a_hook_that_fails_at_the_end(
    ending: str, status: int, cause: str, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(
        f"""
        import os, pathlib, signal
        import pytest
        leaks = []

        def kill_worker():
            zygote = pathlib.Path(f"/proc/{{os.getppid()}}/stat").read_text()
            os.kill(int(zygote.rpartition(")")[2].split()[1]), signal.SIGKILL)

        def pytest_sessionfinish(session):
            if leaks:
                {ending}
        """
    )
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess(CPU, timeout=40)
    result.assert_outcomes(passed=1)
    assert result.ret == status
    assert cause in result.stdout.str()


def test_a_conftest_that_can_not_register_there(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import os

        def pytest_addoption(parser):
            if "REMOTEGPU_WORKER" in os.environ:
                raise ValueError("not there")
        """
    )
    pytester.makepyfile("import pytest\n@pytest.mark.gpu\ndef test_far(): pass\n")
    result = pytester.runpytest_subprocess(CPU, timeout=40)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "ValueError: not there" in result.stderr.str()


def test_a_test_that_reaches_the_runners_socket(pytester: pytest.Pytester) -> None:
    """It alone fails, with what it did; the one before keeps its verdict, the one after runs."""
    pytester.makepyfile(
        """
        import contextlib, os, time
        import pytest
        pytestmark = pytest.mark.gpu

        def test_before(): pass

        def test_writes():
            for fd in range(3, 64):
                with contextlib.suppress(OSError):
                    os.write(fd, b"junkjunk")
            time.sleep(3)

        def test_between(): pass

        def test_closes(): os.closerange(3, 256)

        def test_after(): pass
        """
    )
    result = run(pytester, CPU, "-rA")
    result.assert_outcomes(passed=3, failed=2)
    assert "wrote on the socket of the process that runs it" in said(result)
    assert "closed the socket by which its worker process is heard" in said(result)


def test_streams_that_a_test_takes_away(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys
        import pytest
        pytestmark = pytest.mark.gpu

        def test_out(monkeypatch): sys.stdout = None

        def test_after(): pass
        """
    )
    result = pytester.runpytest_subprocess(CPU, "-s", timeout=40)
    result.assert_outcomes(passed=2)
    assert "INTERNALERROR" not in result.stdout.str()


EXITS = {
    "dies": ("os.kill(os.getpid(), signal.SIGSEGV)", 1, "SIGSEGV"),
    "exits": ("os._exit(3)", 1, "exit status 3"),
    "closes all that is open": ("os.closerange(3, 256)", 0, "1 passed"),
    "passes": ("print('farewell')", 0, "1 passed"),
}


@pytest.mark.parametrize(("does", "status", "cause"), EXITS.values(), ids=EXITS)
def test_what_an_exit_function_does(
    does: str, status: int, cause: str, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        f"""
        import atexit, os, signal
        import pytest

        @pytest.mark.gpu
        def test_far():
            atexit.register(lambda: {does})
        """
    )
    result = pytester.runpytest_subprocess(CPU, timeout=40)
    result.assert_outcomes(passed=1)
    assert result.ret == status
    assert cause in result.stdout.str()


def test_what_the_kernel_has_left_to_do_is_not_waited_for(pytester: pytest.Pytester) -> None:
    """Its exit functions have run: how long the process then takes to go is of no account."""
    pytester.makepyfile(
        """
        import os, pathlib, time
        import pytest

        def lingers(_status):
            pathlib.Path("LINGERS").touch()
            time.sleep(60)

        @pytest.mark.gpu
        def test_far():
            os._exit = lingers
            pathlib.Path("RUNNER").write_text(str(os.getpid()))
        """
    )
    result = pytester.runpytest_subprocess(CPU, timeout=40)
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    assert "cut short" not in result.stdout.str()
    assert "exit" not in result.stdout.str()
    assert until(lambda: not alive(int(Path("RUNNER").read_text())))


def test_a_file_that_closes_the_runners_socket(pytester: pytest.Pytester) -> None:
    """It is named: no test has begun that could have done so."""
    pytester.makepyfile(
        test_far="""
        import os
        import pytest
        os.closerange(3, 256)

        @pytest.mark.gpu
        def test_far(): pass
    """
    )
    text = said(run(pytester, CPU, "-o", "remotegpu_collect=far"))
    assert "the import of test_far.py closed the socket by which its worker process is" in text
    assert "the test closed" not in text


@pytest.mark.parametrize("does", ["sys.exit(0)", "raise KeyboardInterrupt"])
def test_a_conftest_that_ends_the_process_there(pytester: pytest.Pytester, does: str) -> None:
    """Its place is shown, without the frames of pytest around it."""
    pytester.makeconftest(f"""
        import os, sys

        if "REMOTEGPU_WORKER" in os.environ:
            {does}
    """)
    pytester.makepyfile("import pytest\n@pytest.mark.gpu\ndef test_far(): pass\n")
    result = pytester.runpytest_subprocess(CPU, timeout=40)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = result.stderr.str()
    assert ", raised while the session was made there, by" in text
    assert f'{pytester.path}/conftest.py", line 4, in <module>' in text
    assert "pluggy" not in text
