"""Interpreters and packages installed in other ways: conda's prefixes, zip files, switches."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from .both import alike, session

TESTS = """
    import sys
    import pytest
    import packed

    @pytest.mark.gpu
    def test_prefix():
        assert sys.prefix == sys.base_prefix
        assert packed.VALUE == "packed"

    @pytest.mark.gpu
    def test_that_fails():
        assert packed.VALUE == "other"

    @pytest.mark.parametrize("n", [1, 2])
    def test_here(n):
        assert packed.__file__
"""


def project(pytester: pytest.Pytester, tests: str = TESTS) -> Path:
    folder = pytester.mkdir("project")
    text = "\n".join(line.removeprefix("    ") for line in tests.splitlines())
    folder.joinpath("test_it.py").write_text(text, encoding="utf-8")
    folder.joinpath("pytest.ini").write_text("[pytest]\n")
    return folder


def conda_like(folder: Path) -> Path:
    """Make a prefix as conda does: an interpreter, its library and `conda-meta`, no `pyvenv.cfg`.

    Its packages are those of the interpreter that runs this.

    :return: its interpreter.
    """
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = folder / "lib" / name
    packages = library / "site-packages"
    packages.mkdir(parents=True)
    for part in Path(sysconfig.get_path("stdlib")).iterdir():
        if part.name not in ("site-packages", "dist-packages"):
            library.joinpath(part.name).symlink_to(part)
    shared = Path(sys.base_prefix, "lib")
    for part in shared.glob("libpython*"):
        folder.joinpath("lib", part.name).symlink_to(part)
    found = [part for part in sys.path if Path(part).name in ("site-packages", "dist-packages")]
    lines = [f"import site; site.addsitedir({part!r})" for part in found]
    packages.joinpath("here.pth").write_text("\n".join(lines) + "\n")
    folder.joinpath("conda-meta").mkdir()
    folder.joinpath("conda-meta", "history").touch()
    python = folder / "bin" / name
    python.parent.mkdir()
    real = Path(sys.base_prefix, "bin", name)
    python.write_bytes((real if real.exists() else Path(sys.executable).resolve()).read_bytes())
    python.chmod(0o755)
    folder.joinpath("bin", "python").symlink_to(name)
    return folder / "bin" / "python"


@pytest.fixture
def conda(pytester: pytest.Pytester) -> Path:
    python = conda_like(pytester.path / "envs" / "größe 1")
    found, said = session(
        project(pytester, "def test_one(): pass"), command=[python, "-m", "pytest"]
    )
    if found.status != 0:
        pytest.skip(f"no interpreter of this kind can be moved: {said[-300:]}")
    return python


def test_a_prefix_as_conda_makes_it(pytester: pytest.Pytester, conda: Path) -> None:
    """On both sides, with its variables, and with nothing of it on the path."""
    folder = pytester.path / "project"
    text = TESTS.replace("@pytest.mark.gpu\n", "\n")
    text = "\n".join(line.removeprefix("    ") for line in text.splitlines())
    folder.joinpath("test_it.py").write_text(text)
    folder.joinpath("packed.py").write_text("VALUE = 'packed'\n")
    environ = {"CONDA_PREFIX": str(conda.parents[1]), "CONDA_DEFAULT_ENV": "größe 1"}
    found = alike(folder, command=[conda, "-m", "pytest"], environ=environ)
    assert found.counts == {"passed": 3, "failed": 1}


@pytest.mark.parametrize("spec", ["local:cpu", "command:env -C /"])
def test_a_far_interpreter_of_condas(pytester: pytest.Pytester, conda: Path, spec: str) -> None:
    """It is named, and nothing is activated: on this host, and as on another one."""
    folder = pytester.path / "project"
    folder.joinpath("test_it.py").write_text(
        "import sys, pytest\n\n@pytest.mark.gpu\ndef test_far():\n"
        f"    assert sys.executable == {str(conda)!r}\n"
        "    assert sys.prefix == sys.base_prefix\n"
    )
    words = (f"--remote={spec}", "-o", f"remotegpu_python={conda}")
    environ = {"PYTEST_REMOTEGPU_PRETEND_GPUS": "1"}
    found, said = session(folder, *words, environ=environ)
    assert found.counts == {"passed": 1}, said
    assert found.far == set(found.cases)


def archive(path: Path) -> Path:
    """Write a package into a zip file, as a module and one with data."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("packed/__init__.py", "from packed.inner import VALUE\n")
        file.writestr("packed/inner.py", "VALUE = 'packed'\n")
    return path


@pytest.mark.parametrize("where", ["inside", "beside"])
@pytest.mark.parametrize("how", ["variable", "pythonpath", "conftest"])
def test_a_package_in_a_zip_file(pytester: pytest.Pytester, how: str, where: str) -> None:
    tests = TESTS.replace("sys.prefix == sys.base_prefix", "'.zip' in packed.__file__")
    folder = project(pytester, tests.replace("@pytest.mark.gpu\n", "\n"))
    made = archive((folder if where == "inside" else pytester.path) / "packed.zip")
    environ = {}
    if how == "variable":
        environ["PYTHONPATH"] = str(made)
    elif how == "pythonpath":
        folder.joinpath("pytest.ini").write_text(f"[pytest]\npythonpath = {made}\n")
    else:
        folder.joinpath("conftest.py").write_text(
            f"import sys\nsys.path.insert(0, {str(made)!r})\n"
        )
    assert alike(folder, environ=environ).counts == {"passed": 3, "failed": 1}


def test_a_zip_file_of_the_project_travels(pytester: pytest.Pytester) -> None:
    """Also to another machine, by a path that a conftest makes."""
    folder = project(
        pytester, TESTS.replace("sys.prefix == sys.base_prefix", "'.zip' in packed.__file__")
    )
    archive(folder / "packed.zip")
    folder.joinpath("conftest.py").write_text(
        "import pathlib, sys\n"
        "sys.path.insert(0, str(pathlib.Path(__file__).with_name('packed.zip')))\n"
    )
    far = "--remote=command:env -u PYTHONPATH -C / PYTEST_REMOTEGPU_PRETEND_GPUS=1"
    found, said = session(folder, far, "-rf")
    assert found.counts == {"passed": 3, "failed": 1}, said
    assert len(found.far) == 2


SAYS = "sys.flags.dev_mode, sys.flags.utf8_mode, sys.flags.no_user_site, __debug__"
OF_FLAGS = f"""
    import sys

    def test_flags():
        assert ({SAYS}) == EXPECTED

    def test_fails():
        assert 1 == 2
"""


@pytest.mark.parametrize("flags", ["-P", "-I", "-X dev", "-B -s", "-O", "-X utf8=0"])
def test_switches_of_the_interpreter(pytester: pytest.Pytester, flags: str) -> None:
    """What Python was started with here holds there, and does no harm."""
    python = [sys.executable, *flags.split()]
    said = subprocess.check_output([*python, "-c", f"import sys; print(({SAYS}))"], text=True)
    folder = project(pytester, OF_FLAGS.replace("EXPECTED", said.strip()))
    found = alike(folder, command=[*python, "-m", "pytest"])
    assert found.counts == {"passed": 1, "failed": 1}
