"""Loads in the first process only, where it is told to."""

import os

import first

is_first = first.is_first()  # the controller, be it the one that imports test files or not
if os.environ.get("BREAK") == "conftest" and not is_first:
    raise RuntimeError("host-only breakage of the conftest")
