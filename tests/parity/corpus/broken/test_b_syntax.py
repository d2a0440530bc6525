"""Is no Python."""

import pytest

@pytest.mark.gpu
def test_never(:
    pass
