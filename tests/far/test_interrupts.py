"""An interrupt, or ``pytest.exit``, while the far side collects: the session ends, as plainly."""

from __future__ import annotations

import pytest

from session.running import CPU, run, said

FAR = (CPU, "-o", "remotegpu_collect=far")
ONE = "import pytest\n@pytest.mark.gpu\ndef test_it(): pass\n"
INTERRUPTS = {
    "raised": "raise KeyboardInterrupt",
    "raised with a text": "raise KeyboardInterrupt('enough')",
    "sent": "os.kill(os.getpid(), signal.SIGINT)",
}
FILE = """import os, pathlib, signal
with pathlib.Path("imports").open("a") as file: file.write("x")
{does}
import pytest
@pytest.mark.gpu
def test_it(): pass
"""


def banner(result: pytest.RunResult) -> list[str]:
    """Give what a session says of how it was ended."""
    found = result.stdout.lines
    start = next(place for place, line in enumerate(found) if line.startswith("!!!"))
    return [line for line in found[start:] if not line.startswith("===")]


@pytest.mark.parametrize("name", INTERRUPTS)
def test_an_interrupt_at_an_import(pytester: pytest.Pytester, name: str) -> None:
    """Its place is named, and no other process tries again."""
    pytester.makepyfile(test_good=ONE)
    (pytester.path / "test_bad.py").write_text(FILE.format(does=INTERRUPTS[name]))
    plain = run(pytester)
    (pytester.path / "imports").unlink()
    result = run(pytester, *FAR)
    assert banner(result) == banner(plain)
    assert f"{pytester.path}/test_bad.py:3: KeyboardInterrupt" in said(result)
    assert result.ret == plain.ret == pytest.ExitCode.INTERRUPTED
    assert (pytester.path / "imports").read_text() == "x"


def test_an_interrupt_where_this_side_has_collected(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_good=ONE)
    does = "if 'REMOTEGPU_WORKER' in os.environ: raise KeyboardInterrupt"
    (pytester.path / "test_bad.py").write_text(FILE.format(does=does))
    result = run(pytester, CPU, "-o", "remotegpu_collect=here")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert f"{pytester.path}/test_bad.py:3: KeyboardInterrupt" in said(result)
    assert (pytester.path / "imports").read_text() == "xx"  # here, and there once


def test_an_interrupt_in_a_test_has_its_place(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=ONE.replace("pass", "raise KeyboardInterrupt"))
    result = run(pytester, *FAR)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert f"{pytester.path}/test_it.py:3: KeyboardInterrupt" in said(result)


def test_an_exit_at_an_import_is_an_error_of_it(pytester: pytest.Pytester) -> None:
    """As plain pytest has it; other files are collected."""
    pytester.makepyfile(test_bad=f"import pytest\npytest.exit('stop', 7)\n{ONE}", test_good=ONE)
    plain, result = run(pytester), run(pytester, *FAR)
    assert banner(result) == banner(plain)
    assert result.ret == plain.ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize("collects", ["far", "here"])
def test_an_exit_by_a_hook_there(pytester: pytest.Pytester, collects: str) -> None:
    """Its status is that of the session, and its reason is shown, as plainly."""
    pytester.makepyfile(test_good=ONE)
    pytester.makeconftest("""
        import os, pytest

        def pytest_collection_modifyitems():
            if "REMOTEGPU_WORKER" in os.environ:
                pytest.exit("no card", 7)
    """)
    result = run(pytester, CPU, "-o", f"remotegpu_collect={collects}")
    assert "Exit: no card !!!" in said(result)
    assert result.ret == 7
