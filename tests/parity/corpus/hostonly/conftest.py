"""Loads in the first process only, where it is told to."""

import os

import first

if os.environ.get("BREAK") == "conftest" and not first.is_first():
    raise RuntimeError("host-only breakage of the conftest")
