"""An environment for each suite: its release, what its tests need, and this package.

Knows pip's command line; what is run there is no business of this module.
"""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from .legs import ROOT, Place, surroundings
from .suites import Suite

__all__ = ["installed"]

OURS = f"{ROOT}[modal]"


@contextlib.contextmanager
def installed(
    suite: Suite, work: Path, runtime: Path, wheels: Path | None = None, *, here: bool = False
) -> Iterator[Place]:
    """Have a suite's environment; the warm processes that its runs leave are ended with it.

    :param work: where it is made; what is there from another time is used again.
    :param runtime: a folder with a short name, for sockets.
    :param wheels: a folder that has all that is to be installed; else an index is asked.
    :param here: install into this interpreter instead.
    :raises subprocess.CalledProcessError: if pip fails.
    """
    folder = work / suite.name
    folder.mkdir(parents=True, exist_ok=True)
    python = Path(sys.executable) if here else _environment(folder)
    archive = _carried(suite, wheels) if wheels else _downloaded(python, suite, folder)
    source = ["--no-index", f"--find-links={wheels}"] if wheels else []
    if not (folder / "ready").exists():
        # a release that is built needs what builds it, which no index gives here
        source += ["--no-build-isolation"] if wheels else []
        needs = _names(suite.needs) if here else (*suite.needs, OURS)
        _pip(python, "install", *source, str(archive), *needs)
        (folder / "ready").touch()
    elif not here:
        _pip(python, "install", *source, "--no-deps", "--force-reinstall", str(ROOT))
    place = Place(suite, python, archive, folder, surroundings(suite, runtime, python))
    try:
        yield place
    finally:
        stop = [str(python), "-m", "pytest_remotegpu", "stop", "--all"]
        subprocess.run(stop, env=place.environ, stdout=subprocess.DEVNULL, check=False)


def _environment(folder: Path) -> Path:
    made = folder / "venv"
    if not (made / "bin" / "pip").exists():
        subprocess.run([sys.executable, "-m", "venv", "--upgrade-deps", str(made)], check=True)
    return made / "bin" / "python"


def _names(needs: Iterable[str]) -> tuple[str, ...]:
    """Take the versions away: an interpreter that has a package already keeps it."""
    return tuple(one.partition("==")[0] for one in needs)


def _downloaded(python: Path, suite: Suite, folder: Path) -> Path:
    """Fetch the one release that may be used, and give its file."""
    kept = folder / "download"
    kept.mkdir(exist_ok=True)
    pins = folder / "pinned.txt"
    pins.write_text(f"{suite.pinned}\n", encoding="utf-8")
    kind = "--no-binary" if suite.built else "--only-binary"
    words = (kind, ":all:", "--no-deps", "--require-hashes", "-r", str(pins), "-d", str(kept))
    _pip(python, "download", *words)
    (archive,) = kept.iterdir()
    return archive


def _carried(suite: Suite, wheels: Path) -> Path:
    """Find the same file in a folder.

    :raises FileNotFoundError: where none there has a hash that it may have.
    """
    for path in sorted(wheels.iterdir()):
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() in suite.sha256:
            return path
    raise FileNotFoundError(
        f"{wheels} has no file of {suite.requirement} with a hash of suites.toml"
    )


def _pip(python: Path, command: str, *words: str) -> None:
    quiet = ("-qq", "--disable-pip-version-check", "--no-input")
    subprocess.run([python, "-m", "pip", command, *quiet, *words], check=True)
