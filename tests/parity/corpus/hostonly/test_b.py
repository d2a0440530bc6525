"""Is fine everywhere."""

import pytest


@pytest.mark.gpu
def test_far():
    pass
