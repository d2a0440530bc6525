"""A conftest of the other."""

import pytest


@pytest.fixture
def seen():
    return "b"
