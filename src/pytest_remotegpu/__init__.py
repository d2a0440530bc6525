"""Runs GPU-marked tests elsewhere. Must import nothing, since the worker comes through here too.

No assertion of this package is for pytest to rewrite (PYTEST_DONT_REWRITE): a worker imports it
before pytest, and every session there would warn of that.
"""
