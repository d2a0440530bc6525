"""A file and a folder with spaces in their names."""

import pytest


@pytest.mark.gpu
def test_far():
    assert "spaced name" in __file__


def test_here():
    assert 0
