"""Wide parametrised fixtures reorder the tests; all are far away, as a fixture lives on one side."""

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.parametrize("whole", ["m"], ids=["module wide"])]


def test_one(whole, per_session, per_module):
    print(whole, per_session, per_module)


def test_two(whole, per_module):
    print(whole, per_module)


def test_three(whole, per_session):
    print(whole, per_session)


@pytest.mark.parametrize("n", [1, 2], scope="module")
def test_wide_parameter(whole, n, per_module):
    print(n, per_module)


@pytest.mark.parametrize("level", ["low", "high"])
class TestClass:
    def test_a(self, whole, level, per_class):
        print(level, per_class)

    @pytest.mark.parametrize("n", [7])
    def test_b(self, whole, level, n, per_class, per_function):
        print(level, n, per_class, per_function)


class TestChild(TestClass):
    def test_c(self, whole, level):
        print(level)
