"""The plugin of one run of ``--remote-watch``: keeps the session to what is to be run again.

Loaded by name in the run's own process, and in those of pytest-xdist. Its file says what to run; to
another it writes what came of it. Knows nothing of what has changed, or of far sides.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_remotegpu import cost

__all__ = ["OPTION", "Rerun"]

OPTION: Final = "--remotegpu-run"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register where the files are."""
    parser.addoption(OPTION, dest="remotegpu_run", help="for runs of --remote-watch")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep this session to what it is to run."""
    config.pluginmanager.register(Rerun(config, Path(config.option.remotegpu_run)), "rerun")


class Rerun:
    """Selects tests, and writes down what became of them.

    :param folder: has ``run.json``, and gets ``result.json``.
    """

    def __init__(self, config: pytest.Config, folder: Path) -> None:
        self._config = config
        self._folder = folder
        asked = json.loads((folder / "run.json").read_text("utf-8"))
        self._only = None if asked["only"] is None else set(asked["only"])
        self._without = set(asked["without"])
        self._failing = set(asked["failing"])
        self._seen: set[str] | None = None
        self._files: set[str] = set()
        self._broken: set[str] = set()
        self._failed: set[str] = set()
        self._ended: set[str] = set()
        self._usd: float | None = None
        self._worst: float | None = None
        if asked["files"] is not None:
            config.args[:] = _narrowed(config, [Path(file) for file in asked["files"]])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Any:
        """Leave out what has passed just now, or what has not failed."""
        self._seen = {item.nodeid for item in items} & self._failing
        result = yield
        self._select(items)
        return result

    def _select(self, items: list[pytest.Item]) -> None:
        left = [item for item in items if not self._is_wanted(item.nodeid)]
        if left:
            items[:] = [item for item in items if self._is_wanted(item.nodeid)]
            self._config.hook.pytest_deselected(items=left)

    def _is_wanted(self, nodeid: str) -> bool:
        file = nodeid.partition("::")[0]
        named = self._only is None or nodeid in self._only or file in self._only
        return named and nodeid not in self._without

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note each file that was collected, and each that could not be."""
        file = report.nodeid.partition("::")[0]
        if file and (self._config.rootpath / file).is_file():
            self._files.add(file)
            if report.failed:
                self._broken.add(file)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a test went."""
        self._files.add(report.nodeid.partition("::")[0])
        if report.failed:
            self._failed.add(report.nodeid)
        if report.when == "teardown":
            self._ended.add(report.nodeid)

    def pytest_remotegpu_summary(self, summary: Any) -> None:
        """Note what it has cost."""
        self._usd = cost.total(summary.workers)
        self._worst = summary.worst

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Write it all down, once."""
        if hasattr(self._config, "workerinput"):
            return
        result = {
            "files": sorted(self._files),
            "broken": sorted(self._broken),
            "failed": sorted(self._failed),
            "passed": sorted(self._ended - self._failed),
            "seen": None if self._seen is None else sorted(self._seen),
            "usd": self._usd,
            "worst": self._worst,
        }
        part = self._folder / "result.part"
        part.write_text(json.dumps(result), "utf-8")
        part.replace(self._folder / "result.json")


def _narrowed(config: pytest.Config, files: list[Path]) -> list[str]:
    """Give the path arguments that lead to these files and to no other."""
    kept = []
    for argument in map(str, config.args):
        name, colons, _ = argument.partition("::")
        place = Path(os.path.normpath(config.invocation_params.dir / name))
        if colons or place in files:
            kept += [argument] if place in files else []
        else:
            kept += [str(file) for file in files if file.is_relative_to(place)]
    return list(dict.fromkeys(kept))
