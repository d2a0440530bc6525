"""An option of a conftest that is not at the root."""

import pytest


@pytest.mark.gpu
@pytest.mark.parametrize("n", [7, 8])
def test_size(pytestconfig, n):
    assert pytestconfig.getoption("--size") == n
