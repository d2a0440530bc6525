"""A pytest plugin that notes moments of a session, and how much memory its process has used.

Load it with ``-p observer``. It takes part in the session that the user sees and in that of a
worker, whoever started it, and writes one JSON file for each process when the session ends. All
processes are on one host, so their monotonic clocks agree. It knows neither this project's package
nor pytest-xdist, except for the names of their variables and of one hook.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

FOLDER: Final = "BENCHMARK_NOTES"
"""The variable that names the folder for the files."""
OF_WORKERS: Final = ("REMOTEGPU_WORKER", "PYTEST_XDIST_WORKER")
"""Variables that only the processes of workers have."""


class _Observer:
    """Notes when collection ended, and writes everything down.

    :param role: ``main`` for the session that the user sees, else ``worker``.
    """

    def __init__(self, role: str) -> None:
        self._role = role
        self.notes: dict[str, Any] = {"role": role}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_finish(self) -> Generator[None, None, None]:
        """Note the moment before any other plugin does its part."""
        self.notes["collected"] = time.monotonic()
        return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Write the file."""
        self.notes["peak_kib"] = _peak_kib()
        path = Path(os.environ[FOLDER], f"{self._role}-{os.getpid()}.json")
        # pytest-xdist puts live objects on reports; nobody reads those
        path.write_text(json.dumps(self.notes, default=str), encoding="utf-8")


class _MainObserver(_Observer):
    """Notes besides what reports came, and when the last of them had been shown."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__("main")
        self._config = config
        self._samples: list[Any] = []
        self.notes |= {"passed": 0, "reports": self._samples}

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a report; those of the first test are kept."""
        self.notes["passed"] += report.passed
        if len(self._samples) < 3:  # noqa: PLR2004  setup, call, teardown
            hook = self._config.hook.pytest_report_to_serializable
            self._samples.append(hook(config=self._config, report=report))
        self.notes["last_report"] = time.monotonic()

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        """Note when the worker's collection is known here, before anything is sent there."""
        self.notes["far_collected"] = time.monotonic()


def pytest_configure(config: pytest.Config) -> None:
    """Observe this process in its role."""
    is_worker = any(name in os.environ for name in OF_WORKERS)
    observer = _Observer("worker") if is_worker else _MainObserver(config)
    config.pluginmanager.register(observer, "benchmark-observer")


def _peak_kib() -> int:
    """Give the peak resident size of this process.

    Linux keeps one for the program alone. What ``getrusage`` gives there includes the process that
    started this one, as it was before the program was loaded.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak
