"""Overrides a fixture of the root."""

import pytest


@pytest.fixture
def level(level):
    return f"{level}/unit"
