"""Debuggers where nobody sits at a terminal: a clear message with the way out, and no hang."""

from __future__ import annotations

from pathlib import Path

import pytest

from session.running import run, said

from .project import CPU, seated, write
from .seat import PROMPT

BREAKS = """
    import pdb
    import pytest

    pytestmark = pytest.mark.gpu

    def test_breakpoint():
        breakpoint()

    def test_pdb():
        print("was captured")
        pdb.set_trace()

    def test_pytest():
        pytest.set_trace()

    def test_after():
        pass
"""


@pytest.mark.parametrize("options", [[], ["-s"], ["-n1"]], ids=["captured", "live", "xdist"])
def test_a_breakpoint_fails_its_test(
    options: list[str], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each such test, and no other one; what it had written is shown."""
    if "-n1" in options:
        monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin,pytest_remotegpu.plugin")
    pytester.makepyfile(BREAKS)
    result = run(pytester, CPU, *options)
    text = said(result)
    result.assert_outcomes(failed=3, passed=1)
    why = "leave out -n" if "-n1" in options else "start it in a terminal"
    for what in ("breakpoint()", "pdb"):
        assert f"{what} in a shipped test: no terminal is attached there: " in text
    assert text.count(why) >= 3
    assert "run this test without --remote" in text
    assert "was captured" in text


@pytest.mark.parametrize(
    ("where", "option", "why"),
    [
        (CPU, "--pdb", "start it in a terminal"),
        (CPU, "--trace", "start it in a terminal"),
        ("--remote=modal:T4", "--pdb", "modal:T4 rents machines, * or with --remote=ssh:HOST"),
    ],
)
def test_options_are_refused(where: str, option: str, why: str, pytester: pytest.Pytester) -> None:
    """Before anything runs."""
    pytester.makepyfile(BREAKS)
    result = run(pytester, where, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --pdb and --trace need a terminal, *{why}*"])


def test_ranks_share_no_terminal(project: Path) -> None:
    """With somebody there, too: they are several."""
    write(
        project,
        """
        import pytest

        @pytest.mark.gpu(2, launcher="torchrun")
        def test_ranks():
            breakpoint()

        @pytest.mark.gpu
        def test_alone():
            breakpoint()
        """,
    )
    with seated(project, CPU, "--pdb") as seat:
        seat.expect("tests that run in several ranks get no debugger")
        seat.expect(PROMPT)
        seat.type("c\r")
        assert seat.end() == pytest.ExitCode.TESTS_FAILED, seat.text
    assert "breakpoint() in a shipped test: no terminal is attached there: it runs in" in seat.text
    assert seat.last_line == "1 failed, 1 passed"


@pytest.mark.parametrize(
    ("value", "outcomes"),
    [("0", {"failed": 2, "passed": 2}), ("pudb.set_trace", {"failed": 3, "passed": 1})],
)
def test_the_variable_of_breakpoints(
    value: str,
    outcomes: dict[str, int],
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 0 it means nothing, as anywhere."""
    monkeypatch.setenv("PYTHONBREAKPOINT", value)
    pytester.makepyfile(BREAKS)
    run(pytester, CPU).assert_outcomes(**outcomes)


def test_a_debugger_without_a_terminal_there(project: Path) -> None:
    """Of those that are no class for ``--pdbcls`` nobody knows how they would get one."""
    write(project, BREAKS)
    with seated(project, CPU, "-k", "breakpoint") as seat:
        seat.expect(PROMPT)
        seat.type("c\r")
        seat.end()
    seat = seated(project, CPU, "-k", "breakpoint", environ={"PYTHONBREAKPOINT": "pudb.set_trace"})
    with seat:
        assert seat.end() == pytest.ExitCode.TESTS_FAILED, seat.text
    assert "PYTHONBREAKPOINT=pudb.set_trace is a debugger that has no terminal there" in seat.text
