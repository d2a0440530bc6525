"""Checks of the interpreter: Python, the packages that this one needs, and whether pytest loads it.

Asks the installed packages' metadata and imports none of them: what is wrong may be that they can't
be imported.
"""

from __future__ import annotations

import platform
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, entry_points, requires, version

from pytest_remotegpu.doctor.check import Check, fail, ok, warn

__all__ = ["check_package", "check_platform", "check_plugin", "check_python", "packages"]

NAME = "pytest-remotegpu"
OLDEST = (3, 11)
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:>=\s*([0-9.]+))?\s*$")


def check_python(found: tuple[int, ...], implementation: str, path: str) -> Check:
    """Check the interpreter.

    :param found: its version. :param implementation: such as ``CPython``.
    """
    text = f"{implementation} {'.'.join(map(str, found[:3]))}, {path}"
    oldest = ".".join(map(str, OLDEST))
    if found[:2] < OLDEST:
        return fail("python", text, f"use Python {oldest} or newer")
    if implementation != "CPython":
        return warn("python", text, "only CPython is tried; use that where something fails")
    return ok("python", text)


def packages() -> Iterator[Check]:
    """Check this package and those that it can't do without."""
    try:
        needed = requires(NAME) or []
    except PackageNotFoundError:
        pip = _pip("install", NAME)
        yield fail(NAME, "it is not installed in this interpreter, only its files are there", pip)
        return
    yield ok(NAME, version(NAME))
    for text in needed:
        match = REQUIREMENT.match(text)
        if match is not None:  # what is needed for an extra only says so, and does not match
            yield check_package(match[1], match[2] or "0", _installed(match[1]))


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def check_package(name: str, oldest: str, found: str) -> Check:
    """Check one package.

    :param oldest: the oldest version that will do. :param found: the installed one, or empty.
    """
    fix = _pip("install", "--upgrade", f"{name}>={oldest}" if oldest != "0" else name)
    if not found:
        return fail(name, "it is not installed", fix)
    if _numbers(found) < _numbers(oldest):
        return fail(name, f"{found}, and {oldest} is the oldest that will do", fix)
    return ok(name, found)


def _numbers(version: str) -> list[int]:
    """Read the numbers at the start of a version, those after a dot each."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    found = [int(part) for part in numbers[0].split(".")] if numbers else []
    while found and found[-1] == 0:
        found.pop()
    return found


def _pip(*words: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", *words])


def check_plugin(environ: Mapping[str, str], names: list[str] | None = None) -> Check:
    """Check whether pytest will load the plugin.

    :param names: of pytest's plugins that are installed; looked up where they are not given.
    """
    if names is None:
        names = [point.name for point in entry_points(group="pytest11")]
    if "remotegpu" not in names:
        return fail("plugin", "pytest is told of no plugin 'remotegpu'", _pip("install", NAME))
    if environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        return warn(
            "plugin",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD is set: pytest loads no plugin by itself",
            "unset it, or: pytest -p pytest_remotegpu.plugin",
        )
    if re.search(r"-p\s*no:remotegpu\b", environ.get("PYTEST_ADDOPTS", "")):
        return warn("plugin", "PYTEST_ADDOPTS switches it off", "take -p no:remotegpu out of it")
    return ok("plugin", "pytest loads it")


def check_platform(system: str, release: str) -> Check:
    """Check the operating system.

    :param system: as ``sys.platform``. :param release: its version.
    """
    text = f"{system} {release}"
    if system == "win32":
        return warn(
            "platform", f"{text}: workers need a POSIX system", "run pytest inside WSL, or ship"
            " the tests to a Linux host: --remote=ssh:HOST",
        )  # fmt: skip
    if system != "linux":
        return warn(
            "platform", f"{text}: no CUDA here, and local:cpu keeps nothing warm", "ship the tests"
            " to a Linux host: --remote=ssh:HOST",
        )  # fmt: skip
    return ok("platform", text)


def examine(environ: Mapping[str, str]) -> Iterator[Check]:
    """Make all checks of this module."""
    implementation = platform.python_implementation()
    yield check_python(tuple(sys.version_info[:3]), implementation, sys.executable)
    yield from packages()
    yield check_plugin(environ)
    yield check_platform(sys.platform, platform.release())
