"""Ends the whole session from a far test."""

import pytest

pytestmark = pytest.mark.gpu


def test_before():
    pass


def test_exit():
    pytest.exit("enough for today", returncode=7)


def test_never():
    pass
