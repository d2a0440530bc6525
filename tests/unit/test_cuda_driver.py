"""The driver is asked about contexts that exist, and neither loaded, started nor changed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fake_cuda
from fake_cuda import GIB, Library
from pytest_remotegpu.worker.cuda import Driver, Fault


def in_use(*devices: int, count: int = 2) -> Library:
    library = Library(count)
    library.active = set(devices)
    return library


def is_untouched(library: Library, stack: list[int]) -> bool:
    return library.stack == stack and library.retained == [0] * library.count


def test_without_a_context_nothing_is_done() -> None:
    library = in_use()
    driver = Driver(library)
    assert (driver.devices(), driver.in_use(), driver.synchronise()) == ([], False, None)
    assert library.waited == []


def test_a_driver_that_is_not_initialised_stays_so() -> None:
    library = in_use()
    library.initialised = False
    driver = Driver(library)
    assert (driver.devices(), driver.in_use(), driver.synchronise()) == ([], False, None)


def test_only_devices_with_a_context_are_waited_for() -> None:
    library = in_use(0, 2, count=4)
    driver = Driver(library)
    assert driver.devices() == [0, 2]
    assert driver.synchronise() is None
    assert library.waited == [1, 3]
    assert is_untouched(library, [])


def test_the_current_context_stays_current_and_is_waited_for() -> None:
    library = in_use(0, 1)
    own = 7
    library.stack = [2, own]
    assert Driver(library).synchronise() is None
    assert library.waited == [1, 2, own]
    assert is_untouched(library, [2, own])


def test_a_context_that_is_no_primary_one_counts_too() -> None:
    library = in_use()
    library.stack = [7]
    library.faults = {7: 700}
    library.sticky = {7}
    driver = Driver(library)
    assert driver.in_use()
    name, text = fake_cuda.NAMES[700]
    assert driver.synchronise() == Fault(name, text, -1, lasts=True)


@pytest.mark.parametrize("sticky", [True, False])
def test_a_fault_lasts_where_it_is_found_again(sticky: bool) -> None:
    library = in_use(0, 1)
    library.faults = {2: 710}
    library.sticky = {2} if sticky else set()
    driver = Driver(library)
    fault = driver.synchronise()
    assert fault == Fault("CUDA_ERROR_ASSERT", "device-side assert triggered", 1, lasts=sticky)
    assert str(fault) == "CUDA_ERROR_ASSERT: device-side assert triggered (device 1)"
    assert (driver.synchronise() is None) is not sticky
    assert is_untouched(library, [])


def test_a_context_that_cannot_be_entered_is_lost() -> None:
    library = in_use(0)
    library.closed = {0: 700}
    fault = Driver(library).synchronise()
    assert fault is not None
    assert (fault.name, fault.lasts) == ("CUDA_ERROR_ILLEGAL_ADDRESS", True)
    assert is_untouched(library, [])


def test_a_fault_without_a_name_has_its_number() -> None:
    library = in_use(0)
    library.faults = {1: 12345}
    fault = Driver(library).synchronise()
    assert str(fault) == "CUDA error 12345: no description (device 0)"


@pytest.mark.parametrize("status", [3, 4, 201, 709, 900, 906])
def test_what_tells_of_no_kernel_is_no_fault(status: int) -> None:
    library = in_use(0)
    library.faults = {1: status}
    library.sticky = {1}
    assert Driver(library).synchronise() is None


def test_memory_of_a_device() -> None:
    library = in_use(1)
    library.memory = (GIB, 5 * GIB)
    driver = Driver(library)
    assert driver.memory(1) == (GIB, 5 * GIB)
    assert is_untouched(library, [])
    library.faults = {2: 710}
    assert driver.memory(1) == (0, 0)
    library.closed = {1: 710}
    assert driver.memory(1) == (0, 0)
    assert is_untouched(library, [])


# ---------------------------------------------------------------- finding it in a process

FIND = """
import ctypes, sys
from pathlib import Path
from pytest_remotegpu.worker.cuda import Finder

find = Finder()
assert find() is None
import sqlite3  # which loads a library: the driver is looked for anew
assert find() is None
assert "libcuda" not in Path("/proc/self/maps").read_text()
"""


def run(script: str, *arguments: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_process_without_the_driver_stays_without_it() -> None:
    run(FIND)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_driver_is_found_once_somebody_has_loaded_it(tmp_path: Path) -> None:
    later = """
library = ctypes.CDLL(sys.argv[1])
driver = find()
assert driver is not None and find() is driver
assert not driver.in_use()
library.device_is(1, 710)
fault = driver.synchronise()
assert str(fault) == "CUDA_ERROR_ASSERT: device-side assert triggered (device 0)", fault
assert fault.lasts
assert driver.devices() == [0]
library.device_is(1, 0)
assert driver.memory(0) == (3 << 30, 4 << 30)
assert not library.device_is(0, 0) and not driver.in_use()
"""
    run(FIND + later, fake_cuda.build(tmp_path))


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_torch_is_not_initialised_by_being_looked_at() -> None:
    if importlib.util.find_spec("torch") is None:  # never imported in this process
        pytest.skip("needs torch")
    run("""
import torch
from pytest_remotegpu.worker.gpu_state import GpuState
from pathlib import Path

looked = GpuState()
before = set(Path("/proc/self/maps").read_text().splitlines())
looked.begin("one")
looked.pytest_runtest_setup()
looked.pytest_runtest_call()
assert looked.end(0) == [] and not looked.poisoned and not looked.outgrown()
assert not torch.cuda.is_initialized()
libraries = {line.split()[-1] for line in before if ".so" in line}
after = Path("/proc/self/maps").read_text().splitlines()
assert {line.split()[-1] for line in after if ".so" in line} == libraries
""")
