"""Errors in set-up, in tear-down and in both, here and far away."""

import pytest

gpu = pytest.mark.gpu
both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=gpu)])


@pytest.fixture
def broken():
    print("about to break")
    raise OSError(2, "no such device", "/dev/none")


@pytest.fixture
def leaves_badly():
    yield 1
    print("leaving")
    raise RuntimeError("bad teardown")


@pytest.fixture
def leaves_badly_too():
    yield 2
    raise RuntimeError("second bad teardown")


@pytest.fixture
def finalizer_fails(request):
    request.addfinalizer(lambda: print("last finalizer"))
    request.addfinalizer(lambda: [][0])


@pytest.fixture
def yields_twice():
    yield 1
    yield 2


@pytest.fixture
def never_yields():
    if False:
        yield


@pytest.fixture
def skips():
    pytest.skip("skipped by a fixture")


@pytest.fixture
def xfails():
    pytest.xfail("xfailed by a fixture")


@pytest.fixture
def fails():
    pytest.fail("failed by a fixture")


@both
def test_setup(side, broken):
    pass


@both
def test_teardown(side, leaves_badly):
    pass


@both
def test_call_and_teardown(side, leaves_badly):
    assert side == 0


@gpu
def test_two_teardowns(leaves_badly, leaves_badly_too):
    pass


@gpu
def test_finalizer(finalizer_fails):
    pass


@gpu
def test_yields_twice(yields_twice):
    pass


@gpu
def test_never_yields(never_yields):
    pass


@both
def test_missing_fixture(side, not_there):
    pass


@both
def test_skips(side, skips):
    pass


@gpu
def test_xfails(xfails):
    pass


@gpu
def test_fails(fails):
    pass


@gpu
@pytest.mark.xfail(reason="the fixture is broken")
def test_setup_xfail(broken):
    pass


@gpu
@pytest.mark.xfail(reason="only the call")
def test_teardown_xfail(leaves_badly):
    assert False


@gpu
@pytest.mark.skip(reason="never set up")
def test_skip_wins(broken):
    pass


def test_after():
    pass


class TestOldStyle:
    def setup_method(self, method):
        assert method.__name__ != "test_one"

    def teardown_method(self):
        raise ValueError("teardown_method")

    @gpu
    def test_one(self):
        pass

    @gpu
    def test_two(self):
        pass

    def test_three(self):
        pass


@gpu
class TestBrokenClass:
    @classmethod
    def setup_class(cls):
        raise ValueError("setup_class")

    def test_one(self):
        pass

    def test_two(self):
        pass
