import pytest

SEEN = []


@pytest.mark.repeat(3)
def test_thrice():
    SEEN.append(1)
    assert len(SEEN) != 2


def test_once(__pytest_repeat_step_number):
    pass
