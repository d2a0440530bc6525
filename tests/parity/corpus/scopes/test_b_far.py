"""Far tests that share wide fixtures."""

import pytest

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def module_wide():
    print("autouse module up")
    yield
    print("autouse module down")


@pytest.mark.parametrize("i", range(3))
def test_session(model, i):
    assert model == 1


def test_all(model, data, dynamic, each):
    assert (model, data, dynamic, each) == (1, 1, 1, 1)


class TestClass:
    @pytest.fixture(autouse=True, scope="class")
    def class_wide(self):
        print("autouse class up")
        yield
        print("autouse class down")

    def test_one(self, suite, model):
        print(suite)

    def test_two(self, suite, each):
        print(suite)

    def test_fails(self, suite):
        assert suite == "this"


class TestOther:
    def test_one(self, suite):
        print(suite)


@pytest.mark.parametrize("i", range(2))
def test_broken_session(always_broken, i):
    pass


@pytest.fixture(scope="module")
def ends_badly():
    yield
    raise RuntimeError("the module's teardown is broken")


def test_last(ends_badly):
    print("last of this file")
