"""Hangs live objects on reports, as some plugins do."""

import threading

import pytest


class Thing:
    def __str__(self):
        return "a thing"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    report.my_excinfo = call.excinfo
    report.my_lock = threading.Lock()
    report.my_function = lambda: 1
    report.my_number = 7
    if report.when == "call":
        report.user_properties.append(("thing", Thing()))
        report.user_properties.append(("kept", "text"))
