"""Can be imported in the first process only, where it is told so."""

import os

import first
import pytest

if os.environ.get("BREAK") == "file" and not first.is_first():
    raise RuntimeError("host-only breakage of a file")


@pytest.mark.gpu
def test_one():
    pass


@pytest.mark.gpu
@pytest.mark.xfail(reason="is no excuse")
def test_two():
    pass
