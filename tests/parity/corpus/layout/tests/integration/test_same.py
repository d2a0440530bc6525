"""Has the same name as another test file."""

import pytest

from ..unit import test_same as other

both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=pytest.mark.gpu)])


@both
def test_level(side, level):
    assert level == "root"


@both
def test_same(side):
    assert other.__name__ == "tests.unit.test_same"
    assert __name__ == "tests.integration.test_same"
