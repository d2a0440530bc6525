"""The capture fixtures."""

import logging
import os
import sys

import pytest

gpu = pytest.mark.gpu
both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=gpu)])


@both
def test_capsys(side, capsys):
    print("taken")
    assert capsys.readouterr() == ("taken\n", "")
    print("left over")


@gpu
def test_capsys_disabled_failure(capsys):
    print("before", file=sys.stderr)
    assert capsys.readouterr().err == "something else"


@gpu
def test_capsysbinary(capsysbinary):
    sys.stdout.buffer.write(b"\xff")
    sys.stdout.flush()
    assert capsysbinary.readouterr().out == b"\xff"


@both
def test_capfd(side, capfd):
    os.write(1, b"fd text\n")
    assert capfd.readouterr().out == "fd text\n"
    os.write(1, b"fd left over\n")


@gpu
def test_capfdbinary(capfdbinary):
    os.write(2, b"\xfe")
    assert capfdbinary.readouterr().err == b"\xfe"


@gpu
def test_caplog(caplog):
    with caplog.at_level(logging.DEBUG, logger="deep"):
        logging.getLogger("deep").debug("x=%d", 3)
    assert caplog.messages == ["x=3"]
    assert caplog.record_tuples[0][0] == "deep"
    assert 0, "shows the log section"


@both
def test_caplog_phases(side, caplog):
    logging.getLogger("p").warning("in call")
    assert [r.message for r in caplog.get_records("call")] == ["in call"]
    caplog.clear()


@gpu
def test_both_kinds(capsys, capfd):
    pass
