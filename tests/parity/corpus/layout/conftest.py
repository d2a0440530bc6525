"""The root conftest: options, one of them required, and modules of fixtures."""

import pytest

pytest_plugins = ["support.fixtures"]
HELPER = "from the root"


def pytest_addoption(parser):
    parser.addoption("--site", required=True)
    parser.addoption("--base")
    parser.addoption("--mode", choices=["fast", "slow"], default="slow")
    parser.addini("answer", "an ini value", default="42")


def pytest_configure(config):
    config.option.base = config.option.base or "http://made.up"
    config.option.late = ("set", "while configuring")
    config.addinivalue_line("markers", "late: registered late")


def pytest_report_header(config):
    return f"site: {config.getoption('site')}"


@pytest.fixture
def level():
    return "root"
