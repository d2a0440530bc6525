"""The fixture and the marker ``gpu_benchmark``, and the options that go with them.

Loaded with each session, so it imports nothing but pytest before a session needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_remotegpu.bench.fixture import GpuBenchmark

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
    """Register the marker, and who listens for benchmarks."""
    config.addinivalue_line("markers", LINE)


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

    return GpuBenchmark(request, request.node.stash.setdefault(BENCHMARKS, []))
