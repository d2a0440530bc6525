"""Output in every phase and of every kind."""

import logging
import os
import subprocess
import sys

import pytest

gpu = pytest.mark.gpu
both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=gpu)])
log = logging.getLogger("app.train")


def say(phase):
    print(f"{phase}: out")
    print(f"{phase}: err", file=sys.stderr)
    log.info("%s: logged", phase)


@pytest.fixture
def noisy():
    say("setup")
    yield
    say("teardown")


@both
def test_all_phases(side, noisy):
    say("call")


@both
def test_all_phases_failing(side, noisy):
    say("call")
    assert side == 0


@gpu
@pytest.mark.xfail
def test_all_phases_xfail(noisy):
    say("call")
    assert 0


@gpu
def test_skips_after_output(noisy):
    say("call")
    pytest.skip("late")


@both
def test_descriptor(side):
    os.write(1, b"straight to 1\n")
    os.write(2, b"straight to 2\n")


@gpu
def test_child_process():
    subprocess.run(["sh", "-c", "echo from a child; echo its errors >&2"], check=True)


@gpu
def test_not_utf8():
    os.write(1, b"caf\xe9 \xff\xfe \xf0\x9f\x98 end\n")
    assert 0


@gpu
def test_big():
    line = "".join(chr(33 + n % 90) for n in range(1023))
    for _ in range(2048):
        print(line)


@gpu
def test_big_without_newline():
    sys.stdout.write("0123456789" * 20_000)
    sys.stderr.write("é" * 50_000)


@both
def test_colours(side):
    print("\x1b[31mred\x1b[0m and \x1b[1;4mbold\x1b[m")
    assert side == 0


@both
def test_control_bytes(side):
    print("bell \x07 back \x08 null \x00 one \x01 del \x7f vt \x0b ff \x0c nel \x85 ls \u2028 end")
    assert "\x01" == "\x02", "message with \x03 and \x1b"


@gpu
def test_progress_bar():
    for n in range(5):
        sys.stdout.write(f"\r{n}/5")
        sys.stdout.flush()
    print()
    print("windows line\r\n", end="")
    assert 0


@gpu
def test_surrogates():
    print("half \ud83d alone")
    sys.stderr.write("other half \ude00\n")
    log.warning("logged half %s", "\ud83d")
    assert 0


@gpu
def test_unicode():
    print("日本語 \U0001f600 عربى e\u0301 \u200b\ufeff")
    assert 0


@both
def test_no_final_newline(side):
    print("no newline", end="")


@gpu
def test_lines_like_the_terminal_own():
    print("tests/test_x.py::test_y PASSED   [ 50%]")
    print("##teamcity[testStarted name='x']")
    print("--- Captured stdout call ---")
    assert 0


@gpu
def test_log_levels():
    log.debug("not shown")
    log.info("shown")
    logging.getLogger().error("from the root")
    try:
        1 / 0
    except ZeroDivisionError:
        log.exception("with a traceback")
    assert 0


@gpu
def test_log_of_many_lines():
    log.warning("first\nsecond\nthird %s", {"a": 1})
    assert 0


@gpu
def test_closes_stdout_object():
    sys.stdout.flush()
    print("printed", flush=True)
    sys.__stdout__.write("to the original\n")
    sys.__stdout__.flush()


def test_last_here():
    print("here at last")
