"""The GPUs' state between tests: whose fault a fault is, and whose memory stays behind.

Imports no torch and makes no CUDA context: it looks for one that a test has made, and where there
is none it does nothing at all. Knows pytest's hooks; knows nothing of the supervisor.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Final

import pytest

from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.packing import LACKED, NEEDS
from pytest_remotegpu.protocol.plain import to_text
from pytest_remotegpu.worker import memory
from pytest_remotegpu.worker.cuda import Driver, Fault, Finder
from pytest_remotegpu.worker.exceptions import release
from pytest_remotegpu.worker.ledger import Ledger

__all__ = ["GpuState"]

FAULT: Final = "CUDA fault"
"""The section of a report that tells of a fault where the test has failed for another reason."""
LACK: Final = "GPU out of memory"
"""The section of a report that tells what was asked for and what was there."""


class GpuState:
    """The plugin that looks after the GPUs of the process that runs tests.

    :param find: gives CUDA's driver, where this process has it.
    :ivar poisoned: the fault after which CUDA can't be used in this process any more.
    """

    def __init__(self, find: Callable[[], Driver | None] | None = None) -> None:
        self.poisoned = ""
        self._find = find or Finder()
        self._ledger = Ledger()
        self._running = ""
        self._fault: BaseException | None = None
        self._lacked = False
        self._raised: list[BaseException] = []
        self._failed = False

    # faults

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_setup(self) -> None:
        """Find what a setup has started and what failed later."""
        self._settle("setup")

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_call(self) -> None:
        """Find what a test has started and what failed later."""
        self._settle("call")

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self) -> None:
        """Find what a teardown has started and what failed later."""
        self._settle("teardown")

    def _settle(self, when: str) -> None:
        """Wait for the devices while output is still captured; raise a fault that is found.

        Not in a wrapper: those would stand in the traceback of each failure.
        """
        fault = self._new_fault()
        if fault is not None:
            self._fault = _failure(fault, when)
            raise self._fault

    def _new_fault(self) -> Fault | None:
        """Wait for the devices; give a fault, unless the context is known to be lost."""
        driver = self._find()
        if driver is None or self.poisoned or not driver.in_use() or _is_capturing():
            return None
        fault = driver.synchronise()
        if fault is not None and fault.lasts:
            self.poisoned = str(fault)
        return fault

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[Any]) -> Any:
        """Let a fault that nobody has raised yet fail the phase; add what is known to failures."""
        if call.when == "setup":
            self._lacked = False
        fault = self._new_fault()
        if fault is not None:
            self._fault = _failure(fault, call.when)
            if call.excinfo is None or call.excinfo.errisinstance(pytest.skip.Exception):
                call.excinfo = _info(self._fault)
        report: pytest.TestReport = yield
        error = call.excinfo.value if call.excinfo is not None else None
        self._annotate(report, error)
        if error is not None:
            self._keep(error)
        if call.when == "teardown":
            release(self._raised)
            self._raised.clear()
        return report

    def _annotate(self, report: pytest.TestReport, error: BaseException | None) -> None:
        fault, self._fault = self._fault, None
        if fault is not None and error is not fault:
            report.sections.append((FAULT, str(fault)))
        if report.failed and error is not None and memory.is_lack(error):
            self._lacked = True
            text, fit = self._describe(error)
            report.sections.append((LACK, text))
            report.user_properties += [(NEEDS, fit)] if fit else []
        if self._lacked:
            report.user_properties.append((LACKED, True))

    def _describe(self, error: BaseException) -> tuple[str, int]:
        driver, torch = self._find(), memory.torch_in_use()
        devices = driver.devices() if driver is not None else []
        current = torch.cuda.current_device() if torch is not None else (devices or [0])[0]

        def ask(device: int) -> tuple[int, int]:
            return driver.memory(device) if driver is not None and device in devices else (0, 0)

        return memory.describe_lack(error, torch, ask, current)

    def explains(self, error: BaseException) -> bool:
        """Say whether an error at the end of the session comes of a context that is lost."""
        return bool(self.poisoned) and memory.is_cuda_error(error)

    # memory

    def _keep(self, error: BaseException) -> None:
        """Have the memory that an error's frames hold freed, where it may be a GPU's."""
        driver = self._find()
        if driver is not None and driver.in_use():
            self._raised.append(error)
            self._failed = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """Note that something is made which is to outlive the test at hand."""
        self._ledger.wider = self._ledger.wider or fixturedef.scope != "function"

    def begin(self, nodeid: str) -> None:
        """Take a look before a test."""
        self._running, self._failed = nodeid, False
        self._ledger.begin(self._find(), self._torch())

    def _torch(self) -> Any:
        return memory.torch_in_use() if self._find() is not None else None

    def end(self, place: int) -> list[events.Event]:
        """Take a look after a test whose reports are made: give what there is to say of it."""
        said: list[events.Event] = []
        fault = self._new_fault()
        if fault is not None:
            text = f"{fault}, found after {self._running} had ended"
            said.append(events.SessionEnded(1, to_text(text)))
        if self._failed:
            self._give_back()
        used = self._ledger.end(place, self._running, self._find(), self._torch())
        return [*said, used] if used is not None else said

    def _give_back(self) -> None:
        """Free what a failed test has left behind, for other processes as well."""
        gc.collect()
        torch = self._torch()
        if torch is not None and not self.poisoned:
            torch.cuda.empty_cache()

    def outgrown(self) -> str:
        """Say why the tests of the next module should run in a new process; else nothing."""
        return "" if self.poisoned else self._ledger.outgrown()


def _is_capturing() -> bool:
    """Say whether torch records a graph, which waiting for the device would spoil."""
    torch = memory.torch_in_use()
    try:
        return torch is not None and bool(torch.cuda.is_current_stream_capturing())
    except RuntimeError:  # of a context that is lost
        return False


def _failure(fault: Fault, when: str) -> BaseException:
    text = (
        f"{fault}\nThe kernel was asynchronous: this fault was found when the devices were "
        f"synchronised after the {when} phase"
    )
    if fault.lasts:
        text += "\nThis process can't use CUDA any more; the tests that follow run in a new one"
    return pytest.fail.Exception(text, pytrace=False)


def _info(error: BaseException) -> pytest.ExceptionInfo[BaseException]:
    try:
        raise error  # noqa: TRY301 -- so that it has a traceback, without which there is no info
    except BaseException as raised:  # noqa: BLE001 -- the one that was just made
        return pytest.ExceptionInfo.from_exception(raised)
