"""Who here looks at what a session writes: a terminal, a log, a junit file.

Reads pytest's configuration; knows neither tests nor the wire.
"""

from __future__ import annotations

import logging

import pytest

from pytest_remotegpu.candidates import ini

__all__ = ["junit_family", "log_level", "markup", "width"]


def markup(config: pytest.Config) -> bool:
    """Say whether the terminal shows colours."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return bool(reporter is not None and config.get_terminal_writer().hasmarkup)


def width(config: pytest.Config) -> int:
    """Give the columns of the terminal."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return config.get_terminal_writer().fullwidth if reporter is not None else 80


def log_level(config: pytest.Config) -> int | None:
    """Give the lowest level at which somebody here listens to records: live, or in a file."""
    levels = []
    live = ini(config, "log_cli") or config.getoption("log_cli_level", None)
    if live:
        levels.append(_level(config, "log_cli_level"))
    if config.getoption("log_file", None) or ini(config, "log_file"):
        levels.append(_level(config, "log_file_level"))
    return min(levels, default=None)


def junit_family(config: pytest.Config) -> str:
    """Give the format of the junit file; empty where none is written."""
    return str(config.getini("junit_family")) if config.getoption("xmlpath", None) else ""


def _level(config: pytest.Config, name: str) -> int:
    """Read a level as pytest does: option, ini, then ``log_level``, else the root logger's."""
    for key in (name, "log_level"):
        value = config.getoption(key, None) or ini(config, key)
        if value:
            return int(getattr(logging, str(value).upper(), value))
    return logging.getLogger().level
