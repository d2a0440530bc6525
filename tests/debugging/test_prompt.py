"""At the prompt of a shipped test: keys, Ctrl-C, the ends of a session; beside plain pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from .project import seated, write
from .seat import PROMPT

TESTS = """
    import sys
    import pytest

    pytestmark = pytest.mark.gpu

    def test_stops():
        print("said before")
        x = 1
        breakpoint()
        x += 1
        print("said after", x)
        assert sys.stdin is not sys.__stdin__

    def test_after():
        pass
"""


def test_lines_are_edited_and_the_test_goes_on(project: Path, where: str) -> None:
    """Backspace, arrows, history, completion: the far side has the terminal for itself."""
    write(project, TESTS)
    with seated(project, where, "-rA") as seat:
        shown = seat.expect(PROMPT)
        assert "(IO-capturing turned off)" in shown
        assert "test_it.py(10)test_stops()" in shown
        assert "-> x += 1" in shown
        assert seat.ask("p x") == "1"
        seat.type("p x + 4X\x7f1\r")
        assert seat.expect(PROMPT).strip().endswith("42")
        seat.type("'no'\x1b[D\x1b[D\x1b[D\x1b[D\x1b[Dp ('up', \x05)\r")
        assert "('up', 'no')" in seat.expect(PROMPT)
        seat.type("\x1b[A\r")
        assert "('up', 'no')" in seat.expect(PROMPT)
        seat.type("longli\t\r")
        assert "def test_stops():" in seat.expect(PROMPT)
        assert seat.ask("x = 40") == ""
        seat.type("c\r")
        seat.expect("PDB continue (IO-capturing resumed)")
        assert seat.end() == pytest.ExitCode.OK, seat.text
    assert seat.last_line == "2 passed"
    assert "said before\nsaid after 41\n" in seat.text


def test_the_window_has_its_size(project: Path, where: str) -> None:
    """It is known from the start, and followed."""
    write(project, TESTS)
    with seated(project, where) as seat:
        seat.expect(PROMPT)
        assert seat.ask("import os; os.get_terminal_size()") == (
            "os.terminal_size(columns=100, lines=30)"
        )
        seat.resize(20, 70)
        assert seat.ask("import time; time.sleep(0.5); os.get_terminal_size()") == (
            "os.terminal_size(columns=70, lines=20)"
        )
        seat.type("c\r")
        assert seat.end() == pytest.ExitCode.OK, seat.text


@pytest.mark.parametrize("keys", ["q\r", "exit\r"], ids=["q", "exit"])
def test_an_end_at_the_prompt_ends_the_session(keys: str, project: Path, where: str) -> None:
    """With status 2 and in pytest's words; no further test runs."""
    write(project, TESTS)
    with seated(project, where, "-v") as seat:
        seat.expect(PROMPT)
        seat.type(keys)
        assert seat.end() == pytest.ExitCode.INTERRUPTED, seat.text
    assert "Exit: Quitting debugger !!!" in seat.text
    assert seat.last_line == "no tests ran"


def test_eof_at_the_prompt_ends_the_test(project: Path, where: str) -> None:
    """Of a breakpoint, that is: pytest makes a failure of it, and goes on."""
    write(project, TESTS)
    with seated(project, where) as seat:
        seat.expect(PROMPT)
        seat.type("\x04")
        assert seat.end() == pytest.ExitCode.TESTS_FAILED, seat.text
    assert "bdb.BdbQuit" in seat.text
    assert seat.last_line == "1 failed, 1 passed"


def test_ctrl_c_at_the_prompt_ends_the_line(project: Path, where: str) -> None:
    """Neither the debugger nor the session."""
    write(project, TESTS)
    with seated(project, where) as seat:
        seat.expect(PROMPT)
        seat.type("print('half")
        seat.expect("half")
        seat.interrupt("--KeyboardInterrupt--")
        seat.expect(PROMPT)
        assert seat.ask("p x") == "1"
        seat.type("c\r")
        assert seat.end() == pytest.ExitCode.OK, seat.text
    assert seat.last_line == "2 passed"


LONG = """
    import time
    import pytest

    @pytest.mark.gpu
    def test_long():
        breakpoint()
        beats = 0
        while beats < 6000:
            beats += 1
            if beats == 2:
                open("goes-on", "w").close()
            time.sleep(0.01)
        assert beats == 6000
"""


def test_ctrl_c_in_a_line_that_takes_long(project: Path, where: str) -> None:
    """What `next` runs is interrupted, as the test fails with it here."""
    write(project, LONG.replace("beats < 6000", "open('waits', 'w').close() or time.sleep(60)"))
    with seated(project, where) as seat:
        seat.expect(PROMPT)
        seat.ask("n")
        seat.type("n\r")
        seat.wait_for(project / "waits")
        seat.type("\x03")
        shown = seat.expect(PROMPT)
        assert "KeyboardInterrupt" in shown
        assert "--KeyboardInterrupt--" not in shown
        seat.type("q\r")
        assert seat.end() == pytest.ExitCode.INTERRUPTED, seat.text


def test_ctrl_c_after_continue_comes_back(project: Path, where: str) -> None:
    """As the debugger of Python does it: the test stops where it is, and can go on."""
    write(project, LONG)
    with seated(project, where) as seat:
        seat.expect(PROMPT)
        seat.type("c\r")
        seat.expect("PDB continue")
        seat.wait_for(project / "goes-on")
        seat.type("\x03")
        shown = seat.expect(PROMPT)
        assert "test_long()" in shown
        assert int(seat.ask("p beats")) > 0
        seat.ask("beats = 5990")
        seat.type("c\r")
        seat.expect("PDB continue")
        assert seat.end() == pytest.ExitCode.OK, seat.text
    assert seat.last_line == "1 passed"


def test_a_breakpoint_set_at_the_prompt_stops_again(project: Path, where: str) -> None:
    write(project, TESTS)
    with seated(project, where) as seat:
        seat.expect(PROMPT)
        seat.ask("b 11")
        seat.type("c\r")
        seat.expect("PDB continue")
        assert '-> print("said after", x)' in seat.expect(PROMPT)
        assert seat.ask("p x") == "2"
        seat.type("c\r")
        assert seat.end() == pytest.ExitCode.OK, seat.text
    assert seat.last_line == "2 passed"


def test_two_breakpoints_and_live_output(project: Path, where: str) -> None:
    """With ``-s`` nothing is captured, and the heading stands there once."""
    write(project, TESTS.replace("x += 1", "x += 1; breakpoint()"))
    with seated(project, where, "-s") as seat:
        assert seat.expect(PROMPT).count("PDB set_trace") == 1
        seat.type("c\r")
        seat.expect("PDB continue")
        seat.expect(PROMPT)
        assert seat.ask("p x") == "2"
        seat.type("c\r")
        seat.expect("said after 2")
        seat.end()
    assert seat.last_line == "1 failed, 1 passed"  # under -s its standard input is the real one
