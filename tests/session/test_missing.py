"""A file that is here and did not travel is named where a test fails for want of it."""

from __future__ import annotations

import os
import shutil
import textwrap
from pathlib import Path

import pytest

from session.running import run, said

FAR = "--remote=command:env -u PYTHONPATH -C / PYTEST_REMOTEGPU_PRETEND_GPUS=1"
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def far(pytester: pytest.Pytester) -> pytest.Pytester:
    """Give a checkout in which git ignores some files."""
    import sys  # noqa: PLC0415 -- of this fixture alone

    pytester.makeini(f"[pytest]\nremotegpu_python = {sys.executable}\n")
    pytester.run("git", "init", "-q", ".")
    for name in ("data", "pkg"):
        pytester.mkdir(name)
    (pytester.path / ".gitignore").write_text("data/*.bin\n_gen*.py\n", encoding="utf-8")
    (pytester.path / "data/x.bin").touch()
    (pytester.path / "data/y.bin").touch()
    (pytester.path / "pkg/__init__.py").touch()
    (pytester.path / "pkg/_gen.py").touch()
    (pytester.path / "_gen_top.py").touch()
    return pytester


@needs_git
def test_a_failing_test_names_what_did_not_travel(far: pytest.Pytester) -> None:
    far.makepyfile("""
        import os, pathlib, pytest
        pytestmark = pytest.mark.gpu

        def test_relative(): open("data/x.bin")
        def test_absolute(): (pathlib.Path(__file__).parent / "data" / "y.bin").stat()
        def test_words():
            path = os.path.abspath("data/x.bin")
            assert os.path.exists(path), f"{path} is needed"
        def test_module(): import pkg._gen
        def test_name(): from pkg import _gen
        def test_nowhere(): open("data/none.bin")
        def test_no_module(): import pkg.none
        def test_sent(): open("pkg/__init__.py/x")
        def test_passes(): pass
    """)
    result = run(far, FAR, "-p", "no:randomly")
    text = said(result)
    result.assert_outcomes(passed=1, failed=8)
    parts = {
        part.split(" ", 1)[0]: part for part in text.split("\n____") for part in [part.strip("_ ")]
    }
    glob = "git ignores it; to send it, add 'data/{}.bin' to remotegpu_include, or 'data/*.bin'"
    assert glob.format("x") in parts["test_relative"]
    assert glob.format("y") in parts["test_absolute"]
    assert glob.format("x") in parts["test_words"]
    for name in ("test_module", "test_name"):
        assert "add 'pkg/_gen.py' to remotegpu_include" in parts[name]
    for name in ("test_nowhere", "test_no_module", "test_sent"):
        assert "was not sent" not in parts[name]
        assert "Missing on the far side" not in parts[name]


@needs_git
def test_the_way_out_is_one(far: pytest.Pytester) -> None:
    far.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_data(): assert open("data/y.bin").read() == ""
    """)
    run(far, FAR).assert_outcomes(failed=1)
    run(far, FAR, "-o", "remotegpu_include=data/*.bin").assert_outcomes(passed=1)


@needs_git
def test_a_file_that_can_not_be_collected_there_says_so_too(far: pytest.Pytester) -> None:
    far.makepyfile("""
        import pytest
        import _gen_top

        @pytest.mark.gpu
        def test_it(): pass
    """)
    result = run(far, FAR)
    assert result.ret == 2
    assert "add '_gen_top.py' to remotegpu_include" in said(result)


@needs_git
def test_a_conftest_that_does_not_load_there_says_so_too(far: pytest.Pytester) -> None:
    far.makeconftest("import _gen_top")
    far.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_it(): pass
    """)
    result = run(far, FAR)
    assert result.ret == 4
    assert "add '_gen_top.py' to remotegpu_include" in said(result)


WHY = {
    "git": ("_gen my tests.py", "git ignores it", []),
    "exclude": ("test_x.py", "remotegpu_exclude", ["-o", "remotegpu_exclude=test_x*"]),
}
"""Files of tests that do not travel: their name, the reason, and the options for it."""


def write(far: pytest.Pytester, name: str, workers: list[str]) -> None:
    """Write a file of tests of this name beside one that travels."""
    if workers == ["-n2"]:
        pytest.importorskip("xdist")
    for each in (name, "test_sent.py"):
        (far.path / each).write_text("import pytest\n\n@pytest.mark.gpu\ndef test_it(): pass\n")


@needs_git
@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=str)
@pytest.mark.parametrize(("name", "reason", "options"), WHY.values(), ids=WHY)
def test_a_file_of_tests_that_did_not_travel_is_not_collected(
    far: pytest.Pytester, name: str, reason: str, options: list[str], workers: list[str]
) -> None:
    """As one that can't be imported here; with pytest-xdist the others run then."""
    write(far, name, workers)
    result = run(far, FAR, *options, *workers, name, "test_sent.py")
    text = said(result)
    assert result.ret == (1 if workers else 2)
    result.assert_outcomes(errors=1, passed=1 if workers else 0)
    assert f"\n{name!r} was not sent: " in text
    assert reason in text
    assert "pytest-remotegpu/trees" not in text
    if not workers:  # it is no matter which others there are
        far.path.joinpath("test_sent.py").unlink()
        result = run(far, FAR, *options, name)
        assert result.ret == pytest.ExitCode.INTERRUPTED
        assert f"\n{name!r} was not sent: " in said(result)


@needs_git
@pytest.mark.parametrize("workers", [[], ["--remote-workers=2"], ["-n2"]], ids=str)
@pytest.mark.parametrize(("name", "reason", "options"), WHY.values(), ids=WHY)
def test_a_file_of_tests_that_did_not_travel_is_the_cause(
    far: pytest.Pytester, name: str, reason: str, options: list[str], workers: list[str]
) -> None:
    """Where its tests are known here: each line says why, and none names a far folder."""
    write(far, name, workers)
    far.makepyfile(test_here="def test_here(): pass")  # after one has run it is no usage error
    own = ("-o", "remotegpu_collect=here", *options, *workers)
    result = run(far, FAR, *own, name, "test_sent.py", "test_here.py")
    text = said(result)
    assert f"{name!r} was not sent: " in text
    assert reason in text
    assert "not found" not in text
    assert "pytest-remotegpu/trees" not in text
    if workers == ["-n2"]:
        assert result.ret == 4
        return
    result.assert_outcomes(passed=1, errors=3)
    for head in ("cause: ", "not run: "):
        result.stdout.fnmatch_lines([f"{head}{name!r} was not sent: *"])


def test_what_is_excluded_is_named_with_its_glob(pytester: pytest.Pytester) -> None:
    import sys  # noqa: PLC0415 -- of this test alone

    pytester.makeini(f"[pytest]\nremotegpu_python = {sys.executable}\nremotegpu_exclude = big/**\n")
    pytester.mkdir("big").joinpath("weights").touch()
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_it(): open("big/weights")
    """)
    result = run(pytester, FAR)
    assert "'big' matches 'big/**' in remotegpu_exclude" in said(result)


EDITABLE = """
    import importlib.util
    import sys
    import types

    beside = types.ModuleType("__editable___project_finder")
    beside.MAPPING = {mapping!r}

    class Finder:
        @classmethod
        def find_spec(cls, name, path=None, target=None):
            place = beside.MAPPING.get(name)
            if place is not None:
                init = f"{{place}}/__init__.py"
                return importlib.util.spec_from_file_location(
                    name, init, submodule_search_locations=[place]
                )

    Finder.__module__ = beside.__name__
    sys.modules[beside.__name__] = beside
    sys.meta_path.append(Finder)
"""


def install(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, **mapping: str) -> None:
    """Do what ``pip install -e`` with setuptools does: a hook from the start of the interpreter."""
    import sys  # noqa: PLC0415 -- of these tests alone

    site = pytester.path.parent / f"{pytester.path.name}-site"
    site.mkdir()
    places = {name: os.path.normpath(pytester.path / path) for name, path in mapping.items()}
    text = textwrap.dedent(EDITABLE).format(mapping=places)
    (site / "sitecustomize.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(site))
    pytester.makeini(f"[pytest]\nremotegpu_python = {sys.executable}\n")
    for path in places.values():
        Path(path).mkdir(parents=True)
        Path(path, "__init__.py").write_text("VALUE = 7\n", encoding="utf-8")


def test_an_editable_install_by_import_hook_is_found_there(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(pytester, monkeypatch, hooked="src/hooked")
    pytester.makepyfile("""
        import pytest
        import hooked

        @pytest.mark.gpu
        def test_it(): assert hooked.VALUE == 7
    """)
    run(pytester, FAR).assert_outcomes(passed=1)


def test_an_editable_install_that_can_not_travel_is_named(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(pytester, monkeypatch, renamed="python", outer=f"../{pytester.path.name}-outer")
    pytester.makepyfile("""
        import pytest

        try:
            import outer, renamed
        except ImportError:
            pass

        @pytest.mark.gpu
        def test_outer(): import outer
    """)
    result = run(pytester, FAR)
    result.assert_outcomes(failed=1)
    text = said(result)
    assert "module 'outer' was not sent: it is imported here from" in text
    assert "note: module 'renamed' is installed here by an import hook" in text
