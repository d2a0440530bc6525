"""A folder without `__init__`."""

import pytest


@pytest.mark.gpu
def test_name():
    assert __name__ == "test_namespace"
