"""User properties and junit attributes."""

import enum
import pathlib

import pytest

gpu = pytest.mark.gpu
both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=gpu)])


class NumpyLikeText(str):
    __slots__ = ()


class NumpyLikeNumber(float):
    pass


class Level(enum.IntEnum):
    HIGH = 3


PLAIN = {
    "text": "ü \ud83d \x1b[31m",
    "number": 12345678901234567890123,
    "fraction": 1.5,
    "nan": float("nan"),
    "infinity": float("inf"),
    "nothing": None,
    "truth": True,
    "pair": (1, ("two", 3.0)),
    "list": [1, (2,), {"k": (4,)}],
    "mapping": {"a": {"b": [None, ()]}},
}


@both
@pytest.mark.parametrize("name", sorted(PLAIN))
def test_plain_value(side, name, record_property):
    record_property(name, PLAIN[name])


@both
def test_subclasses(side, record_property):
    record_property("path", pathlib.Path("/somewhere/else"))
    record_property("text", NumpyLikeText("np.str_"))
    record_property("level", Level.HIGH)


@both
def test_names_that_are_no_text(side, record_property):
    record_property(3, 4)
    record_property(("a", 1), None)
    record_property(Level.HIGH, Level.HIGH)
    record_property(pathlib.Path("/a/path"), "x")


@gpu
def test_property_of_failure(record_property):
    record_property("before", "failure")
    assert 0


@gpu
def test_same_name_twice(record_property):
    record_property("loss", 1.0)
    record_property("loss", 0.5)


@pytest.fixture
def measured(record_property):
    record_property("phase", "setup")
    yield
    record_property("phase", "teardown")


@both
def test_in_every_phase(side, measured, record_property):
    record_property("phase", "call")


@both
def test_junit_attribute(side, record_xml_attribute):
    record_xml_attribute("assertions", "7")


@gpu
@pytest.mark.parametrize("n", range(6))
def test_some_with_attributes(n, request):
    if n % 2:
        request.getfixturevalue("record_xml_attribute")("assertions", n)
    assert n != 4


@both
def test_suite_property(side, record_testsuite_property):
    record_testsuite_property(f"of {side}", 1)


@gpu
def test_node_property(request):
    request.node.user_properties.append(("appended", ("a", 1)))
