import logging
import sys
import warnings

import pytest


def test_passes(record_property):
    record_property("key", "value")
    print("some output")
    print("some errors", file=sys.stderr)
    logging.getLogger("it").warning("some log")


def test_fails():
    left = {"a": 1, "b": [1, 2]}
    print("before it fails")
    assert left == {"a": 1, "b": [1, 3]}


def test_broken(broken):
    pass


def test_breaks_later(breaks_later):
    pass


def test_skips():
    pytest.skip("not now")


@pytest.mark.skipif(sys.version_info > (3,), reason="not on this one")
def test_skipif():
    pass


@pytest.mark.xfail(reason="known")
def test_known():
    assert False


@pytest.mark.xfail(reason="thought so")
def test_better():
    pass


@pytest.mark.parametrize("n", [1, "two", None])
def test_each(n):
    warnings.warn(f"warned of {n}", UserWarning)


class TestClass:
    """A class."""

    def test_method(self):
        """A method."""


def test_parts(subtests):
    for n in range(3):
        with subtests.test("part", n=n):
            assert n != 1
