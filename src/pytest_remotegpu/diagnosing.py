"""``remotegpu diagnose --remote=SPEC``: the suite of checks as a command on a far side.

It is ``remotegpu run`` of ``python -m pytest_remotegpu.diagnostics``, whose files come back. What
can be seen to be wrong from here is said before anything is rented. Knows what the suite is asked,
and nothing of its checks.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from pytest_remotegpu import command
from pytest_remotegpu.commanding import Streams, arguments, put
from pytest_remotegpu.diagnostics import __main__ as suite
from pytest_remotegpu.diagnostics import asking, faults, looking, report
from pytest_remotegpu.outputs import folder_name
from pytest_remotegpu.summary import RunSummary

__all__ = ["run"]

MODULE: Final = "pytest_remotegpu.diagnostics"


def run(options: argparse.Namespace, told: Sequence[str], environ: Mapping[str, str]) -> int:
    """Make the checks there, and bring the report here.

    :param told: pytest's options, such as ``--remote=SPEC``.
    :return: the exit status of the suite, or one of ``remotegpu run``.
    """
    try:
        asked = asking.read(options)
        looking.look(asked.target, asked.parts, Path.cwd())
        report.prepare(Path(asked.out))
    except faults.NotMeantError as error:
        return suite.complain(str(error), suite.USAGE)
    except faults.UserCodeError as error:
        return suite.complain(f"your code raised {error.raised.head}", suite.RAISED)
    except OSError as error:
        return suite.complain(f"the report can't be written: {error}", suite.USAGE)
    words = [command.PYTHON, "-m", MODULE, *asking.words(asked, command.KEPT)]
    folder = Path(asked.out)
    streams = _Diagnosis(folder)
    session = [*told, f"--remote-artifacts={folder}"]
    try:
        with streams.aside():
            asks = command.option(words, options.gpus or asked.ranks or 1)
            status = int(pytest.main(arguments(asks, session, environ), plugins=[streams]))
    finally:
        streams.bring()
        streams.close()
    ended = streams.status(status)
    put(2, f"{streams.where()}\n".encode(errors="backslashreplace"))
    return ended


class _Diagnosis(Streams):
    """Shows what the suite writes, and puts its files where they belong when they are all here.

    :param folder: of the report; what comes back is in a folder below it at first.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._came = False

    def bring(self) -> None:
        """Move what has come."""
        coming = self._folder / folder_name(f"::{command.NAME}")
        for path in sorted(coming.glob("*")):
            with contextlib.suppress(OSError):
                path.replace(self._folder / path.name)
                self._came = self._came or path.name == report.NAME
        with contextlib.suppress(OSError):
            coming.rmdir()

    def where(self) -> str:
        """Say where the report is."""
        if self._came:
            return f"report: {self._folder / report.NAME}"
        return "no report has come back"

    def pytest_remotegpu_summary(self, summary: RunSummary) -> None:
        """Name the files by the places that they have in the end."""
        self.bring()
        summary.artifact_names = []
        summary.artifacts = 0
