"""Tests for the project's hooks to act upon."""

import pytest
from conftest import Odd

gpu = pytest.mark.gpu
both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=gpu)])


@both
def test_plain(side):
    print("called")


@both
def test_own_comparison(side):
    assert Odd(1) == Odd(3)


@both
def test_late_xfail(side):
    assert 0


@both
def test_late_skip(side):
    assert 0


def test_late_gpu():
    assert 0


def test_named_gpu():
    pass


@both
def test_dropped(side):
    pass


@both
def test_special(side):
    pass


@both
def test_changed(side):
    pass


@both
def test_replaced(side):
    raise AssertionError("never called")


@pytest.mark.order(1)
@gpu
def test_first():
    pass


@pytest.mark.order(2)
def test_second():
    pass


@pytest.mark.order(0)
@gpu
def test_zeroth():
    assert 0


@pytest.mark.order(99)
@gpu
def test_last():
    pass


@pytest.fixture
def breaks():
    yield
    raise RuntimeError("teardown")


@both
def test_special_breaks(side, breaks):
    pass
