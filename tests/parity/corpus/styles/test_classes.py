"""Classes: inheritance, nesting, static methods, marks at every level."""

import pytest

gpu = pytest.mark.gpu


class Base:
    value = 1

    def setup_method(self):
        print("setup", type(self).__name__)
        self.made = self.value

    def teardown_method(self):
        print("teardown", type(self).__name__)

    def test_value(self):
        assert self.made == self.value

    @gpu
    def test_far_in_base(self):
        assert self.value == 1

    @pytest.mark.parametrize("n", [1, 2])
    def test_n(self, n):
        print(n, self.value)


class TestFirst(Base):
    pass


@gpu
class TestSecond(Base):
    value = 2

    @staticmethod
    def test_static():
        print("static")

    @classmethod
    def test_class(cls):
        assert cls.value == 1


class TestThird(TestSecond):
    def test_own(self):
        print("inherits the mark")


class NamedSuite:
    @gpu
    def test_in_suite(self):
        pass

    def test_here_in_suite(self):
        pass


@gpu
class TestXunit:
    @classmethod
    def setup_class(cls):
        print("setup_class")
        cls.shared = []

    @classmethod
    def teardown_class(cls):
        print("teardown_class", len(cls.shared))

    def test_a(self):
        self.shared.append(1)

    def test_b(self):
        self.shared.append(2)
        assert self.shared == [1]


@gpu
class TestWithInit:
    def __init__(self):
        pass

    def test_never(self):
        pass


class TestOuter:
    def test_here(self):
        pass

    @gpu
    class TestInner:
        def test_inner(self):
            print("inner")

        class TestInnermost:
            def test_innermost(self):
                assert "inner" == "most"
