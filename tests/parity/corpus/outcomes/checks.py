"""Assertion helpers outside of the test files."""


def check_even(number):
    assert number % 2 == 0, f"{number} is odd"


def check_quietly(number):
    __tracebackhide__ = True
    assert number == 4
