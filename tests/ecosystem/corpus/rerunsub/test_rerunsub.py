import pytest

COUNTS = {}


def attempt(name):
    COUNTS[name] = COUNTS.get(name, 0) + 1
    return COUNTS[name]


@pytest.mark.flaky(reruns=2)
def test_part_fails_once(subtests):
    number = attempt("part")
    for n in range(3):
        with subtests.test("part", n=n):
            assert n != 1 or number > 1


@pytest.mark.flaky(reruns=1)
def test_whole_fails_once(subtests):
    with subtests.test("part"):
        pass
    assert attempt("whole") > 1


def test_part_fails(subtests):
    with subtests.test("part"):
        assert False
