"""Far tests ahead of local ones."""

import pytest

gpu = pytest.mark.gpu


@gpu
def test_far_one():
    print("out")


@gpu
@pytest.mark.odd
def test_far_two():
    local_value = {"n": [1, 2, 3]}
    assert local_value["n"] == [1, 2, 4]


def test_here_three():
    pass


@gpu
@pytest.mark.odd
@pytest.mark.parametrize("n", range(4))
def test_far_four(n):
    assert n != 2


@gpu
@pytest.mark.skip(reason="no")
def test_far_five():
    pass
