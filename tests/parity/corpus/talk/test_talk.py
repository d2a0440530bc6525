"""Says things and waits until somebody has heard them."""

import logging
import os
import pathlib
import sys
import time

import pytest

log = logging.getLogger("app")
HEARD = pathlib.Path(os.environ["PARITY_FOLDER"], "heard")


def wait_for(name):
    """Wait for a file that the listener makes when it has read the line before."""
    deadline = time.monotonic() + 10
    while not HEARD.with_name(name).exists():
        assert time.monotonic() < deadline, f"nobody heard {name}"
        time.sleep(0.01)


@pytest.mark.gpu
def test_far():
    print("line one")
    print("line two", file=sys.stderr)
    log.info("epoch 1 done")
    wait_for("heard")


@pytest.mark.gpu
def test_bar():
    for i in range(5):
        sys.stdout.write(f"\r{i}/5")
        sys.stdout.flush()
        wait_for(f"bar{i}")
    print()
    log.debug("too detailed for the screen")


def test_here():
    print("line three")
    log.info("epoch 2 done")
