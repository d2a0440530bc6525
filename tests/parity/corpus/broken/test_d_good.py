"""Can be run."""

import pytest


@pytest.mark.gpu
def test_far():
    pass


@pytest.mark.gpu
def test_far_fails():
    assert 0


def test_here():
    pass
