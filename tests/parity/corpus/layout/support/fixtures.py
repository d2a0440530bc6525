"""Fixtures named by pytest_plugins."""

import pytest


@pytest.fixture
def seven():
    assert 3 + 4 == 7
    return 7


@pytest.fixture
def eight_expected(seven):
    assert seven == 8, "rewritten in a plugin module"
