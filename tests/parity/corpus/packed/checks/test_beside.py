import pytest

import packed


@pytest.mark.gpu
def test_far(levels, pytestconfig):
    assert levels == ["root"]
    assert packed.VALUE == 42
    print(pytestconfig.getoption("importmode"), __name__, __file__)


def test_here():
    print(packed.__file__)
