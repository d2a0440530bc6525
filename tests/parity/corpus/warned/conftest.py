"""Warns while it is loaded and in hooks."""

import warnings

import pytest

warnings.warn("conftest is loaded", UserWarning, stacklevel=1)


def pytest_configure(config):
    config.issue_config_time_warning(UserWarning("at configure time"), stacklevel=2)


@pytest.fixture
def warns_around():
    warnings.warn("in setup", UserWarning, stacklevel=1)
    yield
    warnings.warn("in teardown", UserWarning, stacklevel=1)


def pytest_runtest_setup(item):
    if item.name == "test_hook_warns":
        warnings.warn("from a hook", RuntimeWarning, stacklevel=1)
