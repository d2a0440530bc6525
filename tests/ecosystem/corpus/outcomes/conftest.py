import pytest


@pytest.fixture
def broken():
    raise OSError("no such thing")


@pytest.fixture
def breaks_later():
    yield
    raise OSError("too late")
