"""Parametrises wrongly."""

import pytest


@pytest.mark.gpu
@pytest.mark.parametrize("absent", [1])
def test_never():
    pass


@pytest.mark.gpu
def test_unlisted():
    pass
