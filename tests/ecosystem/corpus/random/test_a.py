import random

import pytest


@pytest.mark.parametrize("n", range(5))
def test_draws(n, record_property):
    record_property("drawn", random.random())


class TestOne:
    def test_first(self, record_property):
        record_property("drawn", random.random())

    def test_second(self):
        pass


class TestTwo:
    def test_third(self):
        pass

    def test_fourth(self):
        pass
