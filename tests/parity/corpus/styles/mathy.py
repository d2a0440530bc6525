"""A module with examples.

>>> double(2)
4
"""


def double(x):
    """
    >>> double(3)
    6
    """
    return 2 * x


def half(x):
    """
    >>> half(4)
    3.0
    """
    return x / 2


def fails(x):
    """
    >>> fails(1)
    Traceback (most recent call last):
        ...
    ValueError: x
    >>> fails(0)
    """
    if x:
        raise ValueError("x")
    raise KeyError("unexpected")


def skipped():
    """
    >>> skipped()  # doctest: +SKIP
    1
    """


def half_here(x):
    """
    >>> half_here(4)
    2.0
    """
    return x / 2
