import pytest


@pytest.mark.dependency
def test_base():
    pass


@pytest.mark.dependency
def test_broken():
    assert False


@pytest.mark.dependency(depends=["test_base"])
def test_on_base():
    pass


@pytest.mark.dependency(depends=["test_broken"])
def test_on_broken():
    pass


@pytest.mark.dependency(depends=["test_on_broken", "test_base"])
def test_on_skipped():
    pass
