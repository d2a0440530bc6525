"""Three conftests apply here."""

import pytest

both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=pytest.mark.gpu)])


@both
def test_level(side, level):
    assert level == "root/unit/deep"
