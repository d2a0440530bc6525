"""Local tests ahead of far ones."""

import warnings

import pytest

gpu = pytest.mark.gpu


@pytest.fixture
def breaks():
    yield
    raise RuntimeError("teardown")


@pytest.mark.odd
def test_here_one():
    local_text = "x"
    assert local_text == "y"


def test_here_two():
    pass


@gpu
@pytest.mark.xfail(reason="known")
def test_far_three():
    assert 0


@gpu
def test_far_four(breaks):
    pass


@gpu
@pytest.mark.odd
def test_far_five():
    warnings.warn("careful", UserWarning, stacklevel=1)


def test_here_six():
    warnings.warn("careful", UserWarning, stacklevel=1)


@gpu
def test_far_seven():
    pass
