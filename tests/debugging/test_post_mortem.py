"""``--pdb``, ``--trace`` and ``--pdbcls`` with shipped tests; beside plain pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from .project import CPU, seated, write
from .seat import PROMPT

FAILING = """
    import pytest

    pytestmark = pytest.mark.gpu

    def helper(divisor):
        halved = 4 / divisor
        return halved

    def test_passes():
        pass

    def test_divides():
        print("was said")
        zero = 0
        helper(zero)

    @pytest.fixture
    def broken():
        raise OSError("no such thing")

    def test_needs(broken):
        pass

    def test_last():
        pass
"""


def test_each_failure_is_looked_at(project: Path, where: str) -> None:
    """The failed frame, those above it, and what was captured; then the next test goes on."""
    write(project, FAILING)
    with seated(project, where, "--pdb") as seat:
        shown = seat.expect(PROMPT)
        assert "captured stdout" in shown
        assert "was said" in shown
        assert "ZeroDivisionError" in shown
        assert "test_it.py(6)helper()" in shown
        assert seat.ask("p divisor") == "0"
        assert "test_divides()" in seat.ask("up")
        assert seat.ask("p zero") == "0"
        seat.type("c\r")
        assert "OSError: no such thing" in seat.expect(PROMPT)
        seat.type("c\r")
        assert seat.end() == pytest.ExitCode.TESTS_FAILED, seat.text
    assert seat.last_line == "1 failed, 2 passed, 1 error"


def test_quitting_ends_the_session(project: Path, where: str) -> None:
    """What failed has failed, and nothing after it has run."""
    write(project, FAILING)
    with seated(project, where, "--pdb") as seat:
        seat.expect(PROMPT)
        seat.type("q\r")
        assert seat.end() == pytest.ExitCode.INTERRUPTED, seat.text
    assert "Exit: Quitting debugger !!!" in seat.text
    assert seat.last_line == "1 failed, 1 passed"


HANGING = """
    import time
    import pytest

    @pytest.mark.gpu
    def test_hangs():
        seen = 7
        open("has-begun", "w").close()
        time.sleep(60)

    @pytest.mark.gpu
    def test_after():
        pass
"""


def test_ctrl_c_shows_where_a_test_hangs(project: Path, where: str) -> None:
    """With ``--pdb`` an interrupt is a failure like another."""
    write(project, HANGING)
    with seated(project, where, "--pdb") as seat:
        seat.wait_for(project / "has-begun")
        seat.type("\x03")
        shown = seat.expect(PROMPT)
        assert "KeyboardInterrupt" in shown
        assert "test_hangs()" in shown
        assert seat.ask("p seen") == "7"
        seat.type("c\r")
        assert seat.end() == pytest.ExitCode.TESTS_FAILED, seat.text
    assert seat.last_line == "1 failed, 1 passed"


def test_ctrl_c_that_nobody_answers_ends_the_session(project: Path) -> None:
    """The second one does, as it is then nobody's who debugs."""
    write(project, HANGING.replace("time.sleep(60)", "DEAF"))
    text = (project / "test_it.py").read_text(encoding="utf-8")
    deaf = "import signal; signal.signal(2, signal.SIG_IGN); time.sleep(60)"
    (project / "test_it.py").write_text(text.replace("DEAF", deaf), encoding="utf-8")
    with seated(project, CPU, "--pdb") as seat:
        seat.wait_for(project / "has-begun")
        seat.type("\x03")
        seat.expect("again: ends the session")
        seat.type("\x03")
        assert seat.end() == pytest.ExitCode.INTERRUPTED, seat.text
    assert "KeyboardInterrupt" in seat.text


def test_trace_stops_in_each_test(project: Path, where: str) -> None:
    write(project, HANGING.replace("time.sleep(60)", "pass"))
    with seated(project, where, "--trace") as seat:
        assert "-> seen = 7" in seat.expect(PROMPT)
        seat.type("c\r")
        assert "test_after()" in seat.expect(PROMPT)
        seat.type("c\r")
        assert seat.end() == pytest.ExitCode.OK, seat.text
    assert seat.last_line == "2 passed"


def test_a_debugger_of_ones_own(project: Path) -> None:
    """The far side imports it."""
    write(project, FAILING)
    write(
        project,
        """
        import pdb

        class Own(pdb.Pdb):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                self.prompt = "(own) "
        """,
        "own.py",
    )
    with seated(project, CPU, "--pdb", "--pdbcls=own:Own", "-opythonpath=.") as seat:
        seat.expect("(own) ")
        seat.type("p divisor\r")
        assert seat.expect("(own) ").endswith("\n0\n")
        seat.type("q\r")
        assert seat.end() == pytest.ExitCode.INTERRUPTED, seat.text


def test_local_tests_are_debugged_as_ever(project: Path) -> None:
    """In the order in which all were collected: a local failure, then one far away."""
    write(
        project,
        """
        import pytest

        def test_here():
            place = "here"
            assert place == ""

        @pytest.mark.gpu
        def test_there():
            place = "there"
            assert place == ""
        """,
    )
    with seated(project, CPU, "--pdb") as seat:
        seat.expect(PROMPT)
        assert seat.ask("p place") == "'here'"
        seat.type("c\r")
        seat.expect(PROMPT)
        assert seat.ask("p place") == "'there'"
        seat.type("c\r")
        assert seat.end() == pytest.ExitCode.TESTS_FAILED, seat.text
    assert seat.last_line == "2 failed"
