"""Far tests in the outer package."""

import pytest


@pytest.mark.gpu
def test_pack(pack):
    assert pack


@pytest.mark.gpu
def test_pack_again(pack):
    assert __name__ == "pkg.test_pack"
