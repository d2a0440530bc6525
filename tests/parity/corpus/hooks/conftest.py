"""Hooks of every kind that projects write."""

import sys

import pytest


class Odd:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __repr__(self):
        return f"Odd({self.n})"


def pytest_addoption(parser):
    parser.addoption("--hush", action="store_true")


def pytest_itemcollected(item):
    if item.name.startswith("test_named_gpu"):
        item.add_marker(pytest.mark.gpu)


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: order_of(item))
    for item in items:
        if "late_xfail" in item.name:
            item.add_marker(pytest.mark.xfail(reason="added by the project"))
        if "late_skip" in item.name:
            item.add_marker(pytest.mark.skip(reason="skipped by the project"))
        if "late_gpu" in item.name:
            item.add_marker("gpu")
    dropped = [item for item in items if "dropped" in item.name]
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items if item not in dropped]


def order_of(item):
    mark = item.get_closest_marker("order")
    return mark.args[0] if mark else 50


def pytest_assertrepr_compare(config, op, left, right):
    if isinstance(left, Odd):
        return ["Odd numbers:", f"  {left.n} {op} {right.n}", f"  hush: {config.getoption('hush')}"]
    return None


# Last among the wrappers means inside of the capture, so the output belongs to the test.
@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_setup(item):
    print("before setup of", item.name)
    answer = yield
    print("after setup of", item.name)
    return answer


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item):
    print("before call of", item.name)
    try:
        return (yield)
    finally:
        print("after call of", item.name)


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_teardown(item, nextitem):
    print("before teardown of", item.name, file=sys.stderr)
    yield
    print("after teardown of", item.name, file=sys.stderr)


def pytest_pyfunc_call(pyfuncitem):
    if "replaced" in pyfuncitem.name:
        print("the project called", pyfuncitem.name)
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    report.extra_text = f"extra {report.when}"
    report.extra_data = {"pair": (1, "two"), "list": [None, 2.5]}
    report.sections.append((f"Made by the project in {report.when}", f"{item.name}\nsecond line"))
    if "changed" in item.name and report.when == "call":
        report.outcome = "failed"
        report.longrepr = "the project says no"
    if report.failed and call.when == "call":
        item.user_properties.append(("failed in", call.when))
    return report


def pytest_runtest_logreport(report):
    if report.when == "call":
        print("UPLOAD", report.nodeid, report.extra_text)


def pytest_runtest_logstart(nodeid, location):
    print("START", nodeid, location[1])


def pytest_runtest_logfinish(nodeid, location):
    print("FINISH", nodeid, location[2])


def pytest_report_teststatus(report, config):
    if report.when == "call" and "special" in report.nodeid:
        return "special", "*", ("SPECIAL", {"green": True})
    return None


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    terminalreporter.section("summary of the project")
    for name in ("passed", "failed", "special", "xfailed", "skipped", "error"):
        reports = terminalreporter.getreports(name)
        terminalreporter.line(f"{name}: {len(reports)}")
        for report in reports:
            terminalreporter.line(f"{name} {report.nodeid} {len(report.sections)}")


def pytest_sessionfinish(session, exitstatus):
    if session.config.getoption("hush"):
        session.exitstatus = 0
