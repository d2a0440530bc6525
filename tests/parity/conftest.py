"""Runs projects for the parity tests: two processes at a time, ahead of the tests, each once."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import sshd

from .cases import Case, whole
from .legs import FAULT_LEGS, HAS_MODAL, MODALS, SSH
from .running import HERE, PLAIN, Leg, Observation, Workspace

collect_ignore = ["corpus"]
Runs = Future[tuple[Observation, ...]]
# Numbers of the copies whose runs are taken out of the queue begin here.
STOLEN = 5000


@dataclass
class Lab:
    """Gives the results of cases; a case and leg asked for again is not run again.

    Attributes:
        ssh: a `PATH` on which `ssh` knows its host; None where no server can be started.
        modal: variables with which Modal's client finds its service.
    """

    base: Path
    pool: ThreadPoolExecutor
    ssh: str | None = None
    modal: dict[str, str] = field(default_factory=dict)
    runs: dict[tuple[str, str, str], Runs] = field(default_factory=dict)

    def start(self, case: Case, leg: Leg) -> Runs:
        """Let the pool run a case, unless it was started before."""
        key = (case.name, case.project.name, leg.name)
        if key not in self.runs:
            self.runs[key] = self.pool.submit(self.run, case, leg, len(self.runs))
        return self.runs[key]

    def run(self, case: Case, leg: Leg, number: int) -> tuple[Observation, ...]:
        """Run a case in a folder whose name is as long as all others: nothing is cut elsewhere."""
        workspace = Workspace.make(self.base / f"{number:04}", case.project)
        return case.run(workspace, self.equipped(leg))

    def equipped(self, leg: Leg) -> Leg:
        """Give a leg with the variables that lead to the server or service started for it."""
        if leg == SSH and self.ssh is not None:
            return replace(leg, environment=(*leg.environment, ("PATH", self.ssh)))
        if leg in MODALS:
            return replace(leg, environment=(*leg.environment, *self.modal.items()))
        return leg

    def results(self, case: Case, leg: Leg = PLAIN) -> tuple[Observation, ...]:
        """Give the results of a case, one per step; the pool's queue is not waited for."""
        run = self.start(case, leg)
        if not run.cancel():
            return run.result()
        key = (case.name, case.project.name, leg.name)
        results = self.run(case, leg, len(self.runs) + STOLEN)
        self.runs[key] = done = Runs()
        done.set_result(results)
        return results

    def start_all(self, items: list[pytest.Item]) -> None:
        """Start what the selected tests are going to ask for, in their order."""
        for item in items:
            given = params(item)
            if not given.keys() & {"case", "project"}:
                continue
            if given["leg"] != SSH or self.ssh is not None:
                case = given["case"] if "case" in given else whole(given["project"])
                for leg in (PLAIN, given["leg"].plain, given["leg"]):
                    self.start(case, leg)


def params(item: pytest.Item) -> dict[str, Any]:
    """Give a test's parameters."""
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else callspec.params


@pytest.fixture(scope="module", params=FAULT_LEGS, ids=lambda leg: leg.name)
def leg(request: pytest.FixtureRequest) -> Leg:
    """Give each way on which a far side that goes wrong is tried."""
    leg: Leg = request.param
    return leg


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Give the runner of cases; what the selected tests need is started at once."""
    pool = ThreadPoolExecutor(2)
    lab = Lab(tmp_path_factory.mktemp("parity"), pool)
    with contextlib.ExitStack() as stack:
        if not sshd.why_not() and any(
            SSH in params(item).values() for item in request.session.items
        ):
            folder = tmp_path_factory.mktemp("sshd")
            lab.ssh = stack.enter_context(sshd.serving(folder, accepted="PYTHONPATH")).path
        legs = [leg for item in request.session.items for leg in params(item).values()]
        if HAS_MODAL and any(leg in legs for leg in MODALS):
            from loopback import LoopbackModal  # noqa: PLC0415 -- needs Modal's client

            plugin = tmp_path_factory.mktemp("plugin")
            shutil.copy(HERE / "observer.py", plugin / "parity_observer.py")
            seen = {"PYTHONPATH": str(plugin), "PYTHONHASHSEED": "0"}
            folder = tmp_path_factory.mktemp("modal")
            service = stack.enter_context(LoopbackModal(folder, container_environ=seen))
            lab.modal = service.environ
        if not hasattr(request.config, "workerinput"):
            lab.start_all(request.session.items)
        yield lab
        pool.shutdown(cancel_futures=True)
