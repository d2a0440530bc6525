"""A package fixture."""

import pytest


@pytest.fixture(scope="package")
def pack():
    print("package up")
    yield "pack"
    print("package down")
