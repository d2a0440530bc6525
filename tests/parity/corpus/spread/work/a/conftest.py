"""A conftest of one of the twins."""

import pytest


@pytest.fixture
def seen():
    return "a"
