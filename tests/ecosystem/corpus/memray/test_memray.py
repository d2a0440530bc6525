import pytest


def test_takes():
    kept = [bytearray(2**20) for _ in range(3)]
    assert kept


@pytest.mark.limit_memory("1 MB")
def test_takes_too_much():
    kept = [bytearray(2**20) for _ in range(5)]
    assert kept


@pytest.mark.limit_memory("100 MB")
def test_takes_little():
    pass
