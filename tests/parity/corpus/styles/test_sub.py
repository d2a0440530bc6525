"""pytest's own sub-tests, where this pytest has them."""

import pytest

gpu = pytest.mark.gpu
both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=gpu)])
pytestmark = pytest.mark.skipif(pytest.version_tuple < (9,), reason="no sub-tests in this pytest")


@both
def test_some(side, subtests):
    for i in range(3):
        with subtests.test("message", i=i, obj={1: (2,)}):
            print("sub", i)
            assert i != 1
    print("after")


@gpu
def test_parent_fails(subtests):
    with subtests.test():
        pass
    assert 0


@gpu
def test_skips_and_xfails(subtests):
    with subtests.test("skips"):
        pytest.skip("one part")
    with subtests.test("xfails"):
        pytest.xfail("another part")
    with subtests.test("nested"), subtests.test("inner"):
        raise ValueError("deep")
