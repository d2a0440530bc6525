import random

import pytest

DRAWN = random.random()


def test_module(record_property):
    record_property("drawn", DRAWN)


@pytest.fixture
def given(record_property):
    record_property("fixture", random.random())


def test_given(given):
    pass


def test_other():
    pass
