"""Items that the other process can't have: no value to send and another number of them."""

import threading
import uuid

import first
import pytest

HOW_MANY = 3 if first.is_first() else 2


@pytest.mark.gpu
@pytest.mark.parametrize(
    "lock", [threading.Lock() for _ in range(HOW_MANY)], ids=lambda _: f"lost-{uuid.uuid4().hex}"
)
def test_lost(lock):
    pass


@pytest.mark.gpu
def test_found():
    pass


if HOW_MANY == 3:

    @pytest.mark.gpu
    def test_only_here():
        pass
