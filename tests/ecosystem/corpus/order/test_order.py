import pytest

SEEN = []


@pytest.mark.order(3)
def test_third():
    SEEN.append(3)
    assert SEEN == [1, 2, 3]


@pytest.mark.order("first")
def test_first():
    SEEN.append(1)
    assert SEEN == [1]


@pytest.mark.order(-1)
def test_last():
    assert len(SEEN) == 4


@pytest.mark.order(after="test_third")
def test_after():
    SEEN.append(4)
    assert SEEN == [1, 2, 3, 4]


@pytest.mark.order(2)
def test_second():
    SEEN.append(2)
    assert SEEN == [1, 2]
