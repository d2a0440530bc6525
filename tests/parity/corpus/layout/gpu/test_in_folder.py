"""A folder with the marker's name marks nothing."""

import pytest


def test_here(request):
    assert request.node.get_closest_marker("gpu") is None


@pytest.mark.gpu
def test_far():
    pass
