"""A plugin that the command line or the environment names."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--plugin-says", default="nothing")


@pytest.fixture
def said(pytestconfig):
    return pytestconfig.getoption("--plugin-says")
