"""The plugin of ``remotegpu run`` and ``shell``: in the place of tests stands one command.

Loaded by its name on both sides, so that both have the same test. Knows pytest and the command;
must not know where it runs, nor who shows what it writes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_remotegpu import inplace
from pytest_remotegpu.holding import hold

__all__ = ["KEPT", "NAME", "OPTION", "PYTHON", "STATUS", "Command", "hold_option", "option"]

OPTION: Final = "--remotegpu-command"
STATUS: Final = "remotegpu_exit_status"
"""The user property of the reports that says how the command has ended."""
NAME: Final = "command"
PYTHON, KEPT = "\0python", "\0artifacts"
"""Words that stand for what is known there only, and that nobody can type: the interpreter, and a
folder whose files come back."""
NOT_RUNNABLE, NOT_FOUND, SIGNAL = 126, 127, 128
"""What a shell makes of a program that can't be run, that is not there, that a signal has ended."""
LAST_WORDS: Final = 3.0
"""Seconds that a command has after Ctrl-C, before it is killed."""
OURS: Final = "remotegpu"
"""Begins the names of those plugins whose business a test is that is none of the project's."""


def option(words: list[str], gpus: int, capability: float = 0.0) -> str:
    """Give the option that says what to run.

    :param gpus: how many the command sees.
    :param capability: the compute capability that each must have; 0 for any.
    """
    asked = {"words": words, "gpus": gpus, "capability": capability}
    return f"{OPTION}={json.dumps(asked)}"


def hold_option(token: str, gpus: int) -> str:
    """Give the option that asks to hold the surroundings for a shell.

    :param token: by which the line is known that names the way in.
    """
    return f"{OPTION}={json.dumps({'words': [], 'gpus': gpus, 'token': token})}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register what says which command."""
    parser.addoption(OPTION, dest="remotegpu_command", help="for remotegpu run")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let no plugin remember the command as a test that has failed."""
    for name in ("lfplugin", "nfplugin", "stepwiseplugin"):
        if config.pluginmanager.has_plugin(name):
            config.pluginmanager.unregister(name=name)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> bool:
    """Collect the command, and no file; the project's hooks for tests are not asked about it."""
    config = session.config
    asked = json.loads(config.option.remotegpu_command)
    item = Command.from_parent(session, name=NAME)
    item.words, item.token = asked["words"], asked.get("token", "")
    for mark in _marks(config, asked["gpus"], asked.get("capability", 0.0)):
        item.add_marker(mark)
    session.items = [item]
    session.testscollected = 1
    manager = config.pluginmanager
    others = [each for each in manager.get_plugins() if not _is_ours(manager.get_name(each))]
    modify = manager.subset_hook_caller("pytest_collection_modifyitems", others)
    modify(session=session, config=config, items=session.items)
    config.hook.pytest_collection_finish(session=session)
    return True


def _is_ours(name: str | None) -> bool:
    return bool(name) and str(name).startswith(OURS)


def _marks(config: pytest.Config, gpus: int, capability: float) -> list[pytest.MarkDecorator]:
    """Ask for the GPUs, and tell plugins that have limits or repeat tests to leave it alone."""
    has = config.pluginmanager.has_plugin
    least = {"min_capability": capability} if capability else {}
    marks = [pytest.mark.gpu(count=gpus, **least)]
    marks += [pytest.mark.timeout(0)] if has("timeout") else []
    marks += [pytest.mark.flaky(reruns=0)] if has("rerunfailures") else []
    return marks


class Command(pytest.Item):
    """Runs one command, and passes when that ends with exit status 0; or waits for a shell's end.

    :ivar words: the program and its arguments; empty for a shell. :ivar token: of that.
    """

    words: list[str]
    token: str

    def runtest(self) -> None:
        """Run it.

        :raises EndedError: for any other exit status.
        """
        variables = {**os.environ, "PATH": _path(os.environ)}
        words = [self._meant(word) for word in self.words]
        status = _run(words, variables) if words else hold(self.token, variables)
        self.user_properties.append((STATUS, status))
        if status:
            raise EndedError(status)

    def _meant(self, word: str) -> str:
        if word == KEPT:
            return str(inplace.artifacts_dir(self))
        return sys.executable if word == PYTHON else word

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Say how it has ended; where the fault is ours, with the traceback."""
        if isinstance(excinfo.value, EndedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Name it in reports."""
        return self.path, None, NAME


class EndedError(Exception):
    """Raised when a command ends with another exit status than 0."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the command ended with exit status {status}")


def _run(words: list[str], environ: Mapping[str, str]) -> int:
    """Run a command on this process's streams, without input; give its exit status as shells do."""
    variables = {"PYTHONUNBUFFERED": "1", **environ}
    program = shutil.which(words[0], path=variables["PATH"]) or words[0]
    try:
        child = subprocess.Popen(words, executable=program, stdin=subprocess.DEVNULL, env=variables)
    except OSError as error:
        sys.stderr.write(f"remotegpu: {words[0]!r} can't be run there: {error.strerror}\n")
        sys.stderr.flush()
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
    try:
        status = child.wait()
    except BaseException:
        _end(child)
        raise
    return status if status >= 0 else SIGNAL - status


def _path(environ: Mapping[str, str]) -> str:
    """Give a ``PATH`` on which the programs of this interpreter's environment are."""
    folder, path = str(Path(sys.executable).parent), environ.get("PATH", os.defpath)
    return path if folder in path.split(os.pathsep) else f"{folder}{os.pathsep}{path}"


def _end(child: subprocess.Popen[bytes]) -> None:
    """Hand Ctrl-C on; what does not listen to it is killed."""
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(signal.SIGINT)
    try:
        child.wait(LAST_WORDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
