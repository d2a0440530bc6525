"""Overrides a fixture of both conftests above."""

import pytest


@pytest.fixture
def level(level):
    return f"{level}/deep"


def pytest_runtest_setup(item):
    print("deep conftest sees", item.name)
