"""Editable installs outside the project travel with it, where it needs them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from editable import Around, uses
from session.running import run, said

FAR = "--remote=command:env -u PYTHONPATH -C / PYTEST_REMOTEGPU_PRETEND_GPUS=1"
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
CANARY = "c4n4ry-of-the-library"


@pytest.fixture
def around(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Around:
    return Around(pytester, monkeypatch)


def test_what_is_imported_travels(around: Around) -> None:
    """By a ``.pth`` file, by an import hook, and by a ``.pth`` file of an old tool."""
    first, second, third = (around.library(name) for name in ("first", "second", "third"))
    around.environment.install("first", first, entry=first / "src")
    around.environment.install("second", second, mapping={"second": second / "src" / "second"})
    around.environment.install("third", third, entry=third / "src", recorded=False)
    around.pytester.makepyfile(
        "import first, second, third\n"
        + uses("first", "second", "third").replace("\n        ", "\n")
    )
    run(around.pytester, FAR).assert_outcomes(passed=1)
    (third / "src" / "third" / "__init__.py").write_text("VALUE = 'changed'\n", encoding="utf-8")
    changed = run(around.pytester, FAR)
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines(["*'changed' == 'third'*"])


def test_what_a_library_imports_travels(around: Around) -> None:
    """This side imports neither; inside a function, and from a conftest, it counts as well."""
    for name in ("first", "second", "third", "fourth"):
        folder = around.library(name, inner="import second" if name == "first" else "")
        around.environment.install(name, folder, entry=folder / "src")
    around.pytester.makeconftest("def pytest_configure():\n    import fourth\n")
    around.pytester.makepyfile("""
        import sys
        import pytest
        from first import inner

        @pytest.mark.gpu
        def test_one():
            import third
            assert inner.second.VALUE == "second"
            assert all("/trees/" in sys.modules[it].__file__ for it in ("first", "third", "fourth"))
    """)
    run(around.pytester, FAR).assert_outcomes(passed=1)


@pytest.mark.parametrize("how", ["lock", "requirements", "pyproject", "metadata", "nowhere"])
def test_what_the_project_names_travels(around: Around, how: str) -> None:
    """Also where no source imports it; what an unrelated project has installed does not."""
    root, lib = around.pytester.path, around.library("lib")
    deep = around.library("deep")
    around.environment.install("lib", lib, entry=lib / "src", requires=("deep>=1",))
    around.environment.install("deep", deep, entry=deep / "src")
    beside = f"../{around.folder.name}"
    if how == "lock":
        text = "".join(
            f'[[package]]\nname = "{name}"\nsource = {{ editable = "{beside}/{name}" }}\n'
            for name in ("lib", "deep")
        )
        (root / "uv.lock").write_text(f"version = 1\n{text}", encoding="utf-8")
    elif how == "requirements":
        text = f"-e {beside}/lib\n-e {beside}/deep\n"
        (root / "requirements.txt").write_text(text, encoding="utf-8")
    elif how == "pyproject":
        text = '[project]\nname = "mine"\nversion = "1"\ndependencies = ["Lib"]\n'
        (root / "pyproject.toml").write_text(text, encoding="utf-8")
    elif how == "metadata":
        around.environment.install("mine", root, requires=("lib",))
    names = ("lib", "deep")
    hidden = "lib, deep = (__import__(''.join(name)) for name in (['l', 'ib'], ['d', 'eep']))"
    text = uses(*names, here=False).replace("import lib, deep", hidden)
    around.pytester.makepyfile(text)
    result = run(around.pytester, FAR)
    result.assert_outcomes(**{"failed" if how == "nowhere" else "passed": 1})


@needs_git
def test_by_the_rules(around: Around) -> None:
    """As git lists them; never a secret; and what did not travel is named."""
    lib = around.library("lib", _made="MADE = 1\n")
    (lib / ".gitignore").write_text("_made.py\n", encoding="utf-8")
    (lib / ".env").write_text(CANARY, encoding="utf-8")
    (lib / "server.pem").write_text(CANARY, encoding="utf-8")
    (lib / ".venv").mkdir()
    (lib / ".venv" / "pyvenv.cfg").touch()
    (lib / "data.txt").write_text("beside the package", encoding="utf-8")
    around.commit(lib)
    around.environment.install("lib", lib, entry=lib / "src")
    around.pytester.makepyfile("""
        import lib
        import pathlib, pytest

        pytestmark = pytest.mark.gpu

        def test_files():
            root = pathlib.Path(lib.__file__).parents[2]
            found = sorted(path.name for path in root.iterdir())
            assert found == [".gitignore", "data.txt", "src"]

        def test_made(): import lib._made
    """)
    result = run(around.pytester, FAR)
    result.assert_outcomes(passed=1, failed=1)
    assert "git ignores it" in said(result)
    assert f"of {str(lib)!r}, installed here in editable mode" in said(result)
    stored = [path for path in (around.folder / "cache").rglob("*") if path.is_file()]
    assert stored
    assert not [path for path in stored if CANARY.encode() in path.read_bytes()]


def test_too_large(around: Around) -> None:
    lib = around.library("lib")
    (lib / "weights.bin").write_bytes(bytes(20_000))
    around.environment.install("lib", lib, entry=lib / "src")
    around.pytester.makepyfile(uses("lib"))
    result = run(around.pytester, FAR, "-o", "remotegpu_max_upload=10000")
    assert result.ret == 4
    text = said(result)
    assert "'lib', which is installed here in editable mode from" in text
    assert "'weights.bin'" in text
    assert "raise remotegpu_max_upload, or install it here without -e" in text
    assert "remotegpu_exclude" not in text


def test_what_can_not_travel_is_named(around: Around) -> None:
    """A compiled module is of this machine; a hook may keep to itself where the modules are."""
    import _struct  # noqa: PLC0415 -- any compiled module

    built = getattr(_struct, "__file__", None)
    if built is None:
        pytest.skip("this Python has it built in")
    lib, odd = around.library("lib"), around.library("odd")
    shutil.copy(built, lib / "src" / "lib" / Path(built).name)
    around.environment.install("lib", lib, entry=lib / "src")
    around.environment.install("odd", odd, mapping={})
    around.pytester.makeconftest(f"import sys\nsys.path.append({str(odd / 'src')!r})\n")
    around.pytester.makepyfile("""
        import importlib.machinery, importlib.util, os, sys
        import pytest

        if "REMOTEGPU_WORKER" not in os.environ:
            import lib, odd
            (file,) = [f for f in os.listdir(lib.__path__[0]) if f.startswith("_struct")]
            spec = importlib.util.spec_from_file_location(
                "lib._struct", os.path.join(lib.__path__[0], file)
            )
            sys.modules["lib._struct"] = importlib.util.module_from_spec(spec)

        @pytest.mark.gpu
        def test_lib(): import lib
    """)
    result = run(around.pytester, FAR)
    result.assert_outcomes(failed=1)
    text = said(result)
    assert f"'lib', installed here in editable mode from {str(lib)!r}, is not sent" in text
    assert "its module 'lib._struct' is compiled" in text
    assert f"'odd', installed here in editable mode from {str(odd)!r}, is not sent" in text
    assert "its import hook does not tell where its modules are" in text


@needs_git
def test_at_a_commit(around: Around) -> None:
    """A library of the same repository is sent as that commit has it; another one as it is."""
    root = around.pytester.path
    for name in ("near", "other"):
        around.library(name)
    near = root / "near"
    shutil.move(around.folder / "near", near)
    project = root / "project"
    project.mkdir()
    (project / "pytest.ini").write_text((root / "tox.ini").read_text(encoding="utf-8"))
    (project / "test_it.py").write_text(
        "import near, other, pytest\n"
        "@pytest.mark.gpu\n"
        "def test_one(): assert (near.VALUE, other.VALUE) == ('near', 'changed')\n",
        encoding="utf-8",
    )
    around.commit(root)
    around.commit(around.folder / "other")
    for folder in (near, around.folder / "other"):
        (folder / "src" / folder.name / "__init__.py").write_text("VALUE = 'changed'\n")
        around.environment.install(folder.name, folder, entry=folder / "src")
    result = run(around.pytester, FAR, "--remote-rev=HEAD", f"--rootdir={project}", project)
    result.assert_outcomes(passed=1)
    assert "is sent as it is: it is of another repository than the project" in said(result)


def test_the_plan_shows_them(around: Around) -> None:
    lib = around.library("lib")
    around.environment.install("lib", lib, entry=lib / "src")
    around.pytester.makepyfile(uses("lib"))
    result = run(around.pytester, FAR, "--remote-plan")
    result.stdout.fnmatch_lines([f"*lib (editable install) of '{lib}': 1 files, * bytes"])


def test_the_order_of_the_import_path(around: Around) -> None:
    """Two packages of one name: the one that comes first here comes first there."""
    for first, second in (("a", "b"), ("c", "d")):
        for name in (first, second):
            around.library(name, shared=f"VALUE = {name!r}\n")
            package = around.folder / name / "src"
            (package / f"shared_{first}.py").write_text(f"VALUE = {name!r}\n", encoding="utf-8")
    for name in ("b", "a", "c", "d"):
        folder = around.folder / name
        around.environment.install(name, folder, entry=folder / "src")
    around.pytester.makepyfile("""
        import a, b, c, d, sys
        import pytest
        import shared_a, shared_c

        @pytest.mark.gpu
        def test_one():
            assert (shared_a.VALUE, shared_c.VALUE) == ("a", "c")
    """)
    run(around.pytester, FAR).assert_outcomes(passed=1)
