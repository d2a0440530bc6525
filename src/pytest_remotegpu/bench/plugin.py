"""The fixture and the marker ``gpu_benchmark``, and the options that go with them.

Loaded with each session, so it imports nothing but pytest before a session needs it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_remotegpu.bench.fixture import GpuBenchmark
    from pytest_remotegpu.bench.session import Benchmarks

INSIDE = "REMOTEGPU_WORKER"
"""Set in a process that runs tests for another one."""
MARKER = "gpu_benchmark"
SESSION = "remotegpu-benchmarks"
LINE = (
    "gpu_benchmark(*, rounds=40, warmup=20, flush=True, modes=('eager', 'graph'), group=''): how "
    "the fixture of this name times its contestants"
)
OPTIONS = {
    "--gpu-benchmark-compare": (
        "BASELINE",
        "fail tests that are slower than in this file for certain; without it, write it",
    ),
    "--gpu-benchmark-json": ("FILE", "write all benchmarks as data, and as a baseline"),
    "--gpu-benchmark-history": ("FILE", "add all benchmarks to this file, a line for each"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    group = parser.getgroup("remotegpu-benchmark", "benchmarks of GPU code")
    for option, (metavar, text) in OPTIONS.items():
        group.addoption(option, metavar=metavar, default=None, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and in the process that the user has started who listens."""
    config.addinivalue_line("markers", LINE)
    if hasattr(config, "workerinput") or INSIDE in os.environ:
        return
    listener = Listener(config)
    config.pluginmanager.register(listener, "remotegpu-benchmark-listener")
    if any(config.getoption(option, None) for option in OPTIONS):
        listener.benchmarks()


class Listener:
    """Hands on what tests tell of benchmarks; what listens is loaded once there is something."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._found: Benchmarks | None = None

    def benchmarks(self) -> Benchmarks:
        """Give what a session does with benchmarks.

        :raises pytest.UsageError: for an option that can't be meant.
        """
        if self._found is None:
            from pytest_remotegpu.bench.session import Benchmarks
            from pytest_remotegpu.errors import UsageError

            try:
                self._found = Benchmarks(self._config)
            except UsageError as error:
                raise pytest.UsageError(str(error)) from None
            self._config.pluginmanager.register(self._found, SESSION)
        return self._found

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse marks that can't be meant, before any test runs.

        :raises pytest.UsageError: with the test, and the valid arguments.
        """
        for item in items:
            if item.get_closest_marker(MARKER) is not None:
                from pytest_remotegpu.bench.fixture import arguments
                from pytest_remotegpu.errors import UsageError

                try:
                    arguments(item.iter_markers(MARKER))
                except UsageError as error:
                    raise pytest.UsageError(f"{item.nodeid}: {error}") from None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Any:
        """Let the gate judge a report before anyone else sees it."""
        if getattr(report, "gpu_benchmark", None) is not None:
            self.benchmarks().take(report)
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Let the report of a test's call carry what its benchmarks came to."""
    report = yield
    if call.when == "call" and BENCHMARKS in item.stash:
        results = item.stash[BENCHMARKS]
        report.gpu_benchmark = list(results)
    return report


BENCHMARKS = pytest.StashKey[list[Any]]()
"""What the benchmarks of a test came to, as data, in order."""


@pytest.fixture
def gpu_benchmark(request: pytest.FixtureRequest) -> GpuBenchmark:
    """Times functions against each other, on the card of this test or on the CPU."""
    from pytest_remotegpu.bench.fixture import GpuBenchmark
    from pytest_remotegpu.errors import UsageError

    try:
        return GpuBenchmark(request, request.node.stash.setdefault(BENCHMARKS, []))
    except UsageError as error:
        pytest.fail(str(error), pytrace=False)
