import pytest


@pytest.fixture
def levels(levels):
    return [*levels, "tests"]
