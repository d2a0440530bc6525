import pytest

pytestmark = [pytest.mark.gpu]


def test_levels(levels, request):
    assert levels == ["root", "tests", "deep", "deeper"]
    assert [mark.args for mark in request.node.iter_markers("level")]


@pytest.mark.parametrize("n", range(3), ids=["a", "b c", "d::e"])
def test_ids(n, levels):
    assert n < 2, __name__
