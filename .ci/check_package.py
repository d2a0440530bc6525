"""Build sdist and wheel, look inside them, and use the wheel where no source is near.

What a user installs is the wheel, so that is what is tried: in a virtual environment of its own, in
a temporary folder, on a copy of the quickstart. It knows the package by its files and commands only
and imports nothing of it.

Usage: python .ci/check_package.py [FOLDER]   (FOLDER keeps what was built, `dist` unless given)
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
IN_WHEEL = (
    "pytest_remotegpu/__init__.py",
    "pytest_remotegpu/plugin.py",
    "pytest_remotegpu/py.typed",
    "pytest_remotegpu/worker/__main__.py",
)
IN_SDIST = (
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "pyproject.toml",
    "tox.ini",
    "tests/conftest.py",
)


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run *command* in *cwd*, show it, and raise where it fails."""
    print("+", *command, flush=True)
    subprocess.run(command, cwd=cwd, check=True, stdin=subprocess.DEVNULL)


def build(folder: Path) -> tuple[Path, Path]:
    """Build into the emptied *folder* and return the wheel's and the sdist's path."""
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", folder)
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    return wheel, sdist


def find_faults(wheel: Path, sdist: Path) -> list[str]:
    """Return one sentence for each file that is missing, or that should not have been packed."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    with tarfile.open(sdist) as tar:
        packed = {name.partition("/")[2] for name in tar.getnames()}
    faults = [f"{wheel.name} lacks {name}" for name in IN_WHEEL if name not in names]
    faults += [f"{sdist.name} lacks {name}" for name in IN_SDIST if name not in packed]
    faults += [
        f"{wheel.name} holds {name}"
        for name in names
        if not name.startswith(("pytest_remotegpu/", "pytest_remotegpu-"))
    ]
    return faults


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install *wheel* into a new environment in *folder* and run the quickstart with it."""
    venv.create(folder / "venv", with_pip=True, symlinks=True)
    python = next((folder / "venv").glob("[bS]*/python*"))
    run(python, "-m", "pip", "install", "-q", wheel, cwd=folder)
    shutil.copytree(ROOT / "examples" / "quickstart", folder / "quickstart")
    run(python, "-m", "pytest", "--remote=local:cpu", "-q", ".", cwd=folder / "quickstart")


def main(argv: list[str]) -> int:
    """Build, look and try; return the exit status, 1 where something is missing."""
    wheel, sdist = build(Path(argv[0] if argv else ROOT / "dist").resolve())
    if faults := find_faults(wheel, sdist):
        print("\n".join(faults), file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="wheel-") as folder:
        try_wheel(wheel, Path(folder))
    print(f"{wheel.name}: built, complete, and the quickstart runs with it")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
