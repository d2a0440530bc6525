import pytest

from packed import VALUE
from . import __name__ as package


@pytest.mark.gpu
class TestValue:
    def test_far(self, levels):
        assert VALUE == 42
        assert levels == ["root", "tests"]

    def test_package(self):
        assert package == "packed.tests", __name__


def test_here(levels):
    print(__name__, __package__, levels)
    assert levels == ["root"], "they are two"


@pytest.mark.gpu
def test_renamed(both):
    assert both == "one"


def test_later_gpu(record_property):
    record_property("value", VALUE)
