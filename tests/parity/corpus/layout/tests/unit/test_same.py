"""Has the same name as another test file."""

import pytest

both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=pytest.mark.gpu)])


@both
def test_level(side, level):
    assert level == "root/unit"


@both
def test_same(side):
    assert __name__ == "tests.integration.test_same"
