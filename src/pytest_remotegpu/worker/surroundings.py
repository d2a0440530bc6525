"""A runner's process made the user's: environment, folder, arguments, import path, mode mask.

Knows an order, and nothing of pytest or of what is done for the order.
"""

from __future__ import annotations

import importlib.abc
import os
import random
import sys
import time
from pathlib import Path
from typing import Final

from pytest_remotegpu.protocol import orders

__all__ = ["settle_in"]

PYTHONPATH: Final = "PYTHONPATH"
WORKER_VARIABLE: Final = "REMOTEGPU_WORKER"
"""Tests and conftests read the worker's id here; sessions that a test starts ship nothing."""


COMPILERS: Final = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
"""Variables that say where compilers of kernels keep what they made, and our folders for that."""


def settle_in(order: orders.Order) -> None:
    """Make this process the user's: environment, folder, arguments, import path, mode mask."""
    given = order.options
    if order.environ is not None:
        os.environ.clear()
        os.environ.update(order.environ)
    own_path = os.environ.get(PYTHONPATH) if order.environ is None else None
    os.environ.update(order.variables)
    if own_path and PYTHONPATH in order.variables:  # what its tests' processes find besides
        os.environ[PYTHONPATH] = f"{order.variables[PYTHONPATH]}{os.pathsep}{own_path}"
    for name in [name for name in os.environ if name.startswith("PYTEST_REMOTEGPU")]:
        del os.environ[name]
    if order.site.devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = order.site.devices
        if order.site.devices.replace(",", "").isdecimal():
            os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    for name, folder in COMPILERS.items():
        if order.site.caches and name not in os.environ:
            os.environ[name] = str(Path(order.site.caches, folder))
    os.environ[WORKER_VARIABLE] = order.worker
    time.tzset()
    _forget_folders()
    os.chdir(order.cwd)
    os.umask(given.umask)
    if given.live:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.argv[:] = given.argv
    sys.path[:] = given.sys_path if given.whole_path else [*given.sys_path, *sys.path]
    random.seed()


def _forget_folders() -> None:
    """Look at every folder of the import path anew: the process may have been warm for long."""
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, importlib.abc.PathEntryFinder):
            finder.invalidate_caches()
