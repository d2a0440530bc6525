"""Each module imported alone, in an interpreter of its own, with warnings as errors.

It shows that no module leans on another one's having been imported first, and what an import drags
along: the supervisor must stay free of all that a test might bring, and an installed but unused
plugin must cost nothing. Knows module names only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pytest_remotegpu

HOME = Path(pytest_remotegpu.__file__).parent
SCRIPT = "import importlib, json, sys; importlib.import_module(sys.argv[1]); "
SCRIPT += "print(json.dumps(sorted(sys.modules)))"

Imports = Mapping[str, subprocess.CompletedProcess[str]]


def find_modules() -> list[str]:
    """Return the dotted names of all modules of the package, found without importing any."""
    relative = (path.relative_to(HOME.parent).with_suffix("") for path in HOME.rglob("*.py"))
    names = (".".join(path.parts).removesuffix(".__init__") for path in relative)
    return sorted(names)


def import_alone(module: str) -> subprocess.CompletedProcess[str]:
    """Import *module* in a new interpreter that prints the names of all modules it then holds."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, module],
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture(scope="module")
def imports() -> Imports:
    """Map each module's name to the interpreter that imported it: started once, some at a time."""
    modules = find_modules()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(modules, pool.map(import_alone, modules), strict=True))


def loaded(imports: Imports, module: str) -> set[str]:
    """Return the names of all modules that importing *module* leaves behind."""
    result = imports[module]
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout))


@pytest.mark.parametrize("module", find_modules())
def test_imports_alone(module: str, imports: Imports) -> None:
    result = imports[module]
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("module", ["__main__", "supervisor"])
def test_supervisor_loads_nothing_of_a_test(module: str, imports: Imports) -> None:
    unwanted = {"pytest", "_pytest", "torch", "numpy", "cloudpickle", "modal"}
    unwanted |= {"pytest_remotegpu.plugin", "pytest_remotegpu.worker.runner"}
    assert unwanted & loaded(imports, f"pytest_remotegpu.worker.{module}") == set()


@pytest.mark.parametrize("module", [name for name in find_modules() if ".worker" in name])
def test_worker_loads_the_ground_floor_only(module: str, imports: Imports) -> None:
    allowed = {
        *("worker", "protocol", "manifest", "cards", "leftovers", "locks", "stamps", "gpu"),
        "errors",
    }
    names = {name for name in loaded(imports, module) if name.startswith("pytest_remotegpu.")}
    assert {name for name in names if name.split(".")[1] not in allowed} == set()


def test_plugin_that_is_only_installed_stays_light(imports: Imports) -> None:
    unwanted = {"msgspec", "cloudpickle", "torch", "modal", "asyncio", "multiprocessing"}
    assert unwanted & loaded(imports, "pytest_remotegpu.plugin") == set()


@pytest.mark.parametrize("unwanted", ["torch", "modal"])
def test_nothing_loads_what_may_be_missing(unwanted: str, imports: Imports) -> None:
    """Where it is missing, the import of such a module has failed above."""
    assert [name for name in imports if unwanted in loaded(imports, name)] == []


LOCAL = """
import sys
import pytest
status = pytest.main(["--remote=local:cpu", "--collect-only", "-q", "-p", "no:cacheprovider", "."])
assert status == 5, status
"""
UNNEEDED = ("packaging.requirements", "ssl", "urllib.request", "pytest_remotegpu.recipe.reading")


def test_a_local_far_side_loads_nothing_of_what_distant_ones_need(tmp_path: Path) -> None:
    program = f"{LOCAL}\nprint([name for name in {UNNEEDED!r} if name in sys.modules])"
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST")
    } | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_remotegpu.plugin"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
