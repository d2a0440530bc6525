import pytest

COUNTS = {}


def attempt(name):
    COUNTS[name] = COUNTS.get(name, 0) + 1
    return COUNTS[name]


@pytest.mark.flaky(reruns=2)
def test_second_time():
    print("attempt", attempt("second"))
    assert COUNTS["second"] == 2


@pytest.mark.flaky(reruns=1)
def test_never():
    assert attempt("never") == 0


@pytest.mark.flaky(reruns=2, only_rerun=["ValueError"])
def test_only():
    if attempt("only") == 1:
        raise ValueError("again")


@pytest.mark.flaky(reruns=2, condition=False)
def test_not_at_all():
    assert attempt("not") == 0


@pytest.fixture
def shaky():
    assert attempt("shaky") == 2


@pytest.mark.flaky(reruns=1)
def test_shaky_fixture(shaky):
    pass


@pytest.mark.flaky(reruns=1)
@pytest.mark.xfail(reason="known")
def test_known():
    assert False


@pytest.mark.flaky(reruns=1)
def test_skipped():
    pytest.skip("not now")


@pytest.mark.parametrize("n", [1, 2])
def test_plain(n):
    assert attempt(n) == 1
