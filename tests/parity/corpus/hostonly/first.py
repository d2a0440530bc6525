"""Tells the process that came first, which is the controller, from the one that runs the tests."""

import os
import pathlib

MARK = pathlib.Path(os.environ["PARITY_FOLDER"], "first.pid")


def is_first():
    """Claim to be the first, or find that another process was."""
    try:
        with MARK.open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return MARK.read_text() == str(os.getpid())
    return True
