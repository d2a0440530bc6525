"""What a process does before it ends by ``os._exit``: what was asked for, and nothing needless."""

import subprocess
import sys

PROGRAM = """
import atexit
import weakref

from pytest_remotegpu.worker.ending import run_exit_functions


class Thing:
    pass


def taken_apart(name):
    print("taken apart", name)


def tidied(name):
    print("tidied", name)


taken_apart.__module__ = "torch.library"
thing = Thing()
weakref.finalize(thing, taken_apart, "an operator")
weakref.finalize(thing, tidied, "a folder")
atexit.register(print, "told")
run_exit_functions()
import os, sys
sys.stdout.flush()
os._exit(0)
"""


def test_all_exit_functions_run_but_those_that_take_torch_apart() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["told", "tidied a folder"]
