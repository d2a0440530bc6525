"""Far tests in an inner package."""

import pytest


@pytest.mark.gpu
def test_in(pack):
    assert pack
