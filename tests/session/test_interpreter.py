"""Options of the interpreter, which are the session's also where its tests run elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .running import CPU

SEEN = """
    import signal, sys, warnings
    import pytest

    @pytest.mark.gpu
    def test_sees():
        flags = {name: getattr(sys.flags, name) for name in dir(sys.flags) if name[0].islower()}
        flags = {name: value for name, value in flags.items() if isinstance(value, int)}
        print("SEEN", flags, sys.warnoptions, sys._xoptions)
        print("HANGUP", signal.getsignal(signal.SIGHUP), "INT", signal.getsignal(signal.SIGINT))

    @pytest.mark.gpu
    def test_warns():
        warnings.warn("far", UserWarning)

    @pytest.mark.gpu
    def test_bytes():
        assert (b"x" == "x") is False

    @pytest.mark.gpu
    def test_asserts():
        def inner():
            assert False
        exec("assert False")
"""
OPTIONS = [
    "",
    "-W error -bb",
    "-O -P -B",
    "-X dev -X utf8",
    "-I",
    "-E -s -W error::UserWarning -X tracemalloc=3",
]


def outcome(*words: str, **variables: str) -> tuple[int, list[str]]:
    """Run a session, and give its exit status and what of its output must be the same."""
    done = subprocess.run(
        [sys.executable, *words, "-rP", "-v", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **variables},
    )
    marks = ("SEEN", "HANGUP", "PASSED", "FAILED")
    seen = [
        line.split(" [")[0] for line in done.stdout.splitlines() if any(m in line for m in marks)
    ]
    return done.returncode, seen or [done.stdout, done.stderr]


@pytest.mark.parametrize("options", OPTIONS)
def test_they_are_those_of_plain_pytest(options: str, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers = gpu: registered for plain pytest\n")
    pytester.makepyfile(test_it=SEEN)
    words = options.split()
    plain = outcome(*words, "-m", "pytest", "-p", "no:remotegpu")
    assert len(plain[1]) >= 6
    assert outcome(*words, "-m", "pytest", CPU) == plain


@pytest.mark.parametrize(
    "variables",
    [{"PYTHONWARNINGS": "error"}, {"PYTHONOPTIMIZE": "1", "PYTHONUTF8": "1"}],
    ids=" ".join,
)
def test_variables_that_python_reads_when_it_starts(
    variables: dict[str, str], pytester: pytest.Pytester
) -> None:
    """They hold on a far side that has an environment of its own."""
    pytester.makeini("[pytest]\nmarkers = gpu: registered for plain pytest\n")
    pytester.makepyfile(test_it=SEEN)
    unset = " ".join(f"-u {name}" for name in variables)
    far = f"--remote=command:env {unset} PYTEST_REMOTEGPU_PRETEND_GPUS=1"
    ini = ("-o", f"remotegpu_python={sys.executable}")
    plain = outcome("-m", "pytest", "-p", "no:remotegpu", **variables)
    assert outcome("-m", "pytest", far, *ini, **variables) == plain
