import time

import pytest


def test_before():
    pass


@pytest.mark.timeout(0.3)
def test_sleeps():
    print("before it sleeps")
    time.sleep(30)


@pytest.fixture
def slow():
    time.sleep(30)


@pytest.mark.timeout(0.3)
def test_slow_fixture(slow):
    pass


@pytest.mark.timeout(0.3, func_only=True)
def test_quick():
    pass


def test_after():
    pass
