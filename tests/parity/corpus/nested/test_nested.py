"""One far and one local test."""

import os
import subprocess
import sys

import pytest

CHILD = "import os; print(sorted(k for k in os.environ if k.startswith('PYTEST_REMOTEGPU')))"


@pytest.mark.gpu
def test_far(pytestconfig):
    assert hasattr(pytestconfig, "workerinput")


@pytest.mark.gpu
def test_children_see_no_variables():
    child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, check=True)
    assert child.stdout.strip() == b"[]"


def test_here(pytestconfig):
    assert not hasattr(pytestconfig, "workerinput")
    assert os.getpid()
