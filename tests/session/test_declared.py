"""What the project declares and the far side has not is named once, and all of it at once.

None of these packages exists anywhere. Here some are installed nevertheless: as metadata and a
module in a folder that the far side does not have on its path.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from session.running import CPU, run, said

FAR = "--remote=command:env -u PYTHONPATH -C / PYTEST_REMOTEGPU_PRETEND_GPUS=1"
HEAD = "declared but not installed there: "
PIP = f"on the far side: {sys.executable} -m pip install"
TESTS = """
    import pytest

    @pytest.mark.gpu
    def test_one(): import first_of_nobody

    @pytest.mark.gpu
    def test_two(): import second_of_nobody

    @pytest.mark.gpu
    def test_three(): pass
"""
PROJECT = """
    [project]
    name = "mine"
    version = "1"
    dependencies = [
        "First-of.Nobody>=1.5",
        "pytest",
        "elsewhere-of-nobody; sys_platform == 'win32'",
        "mine[more]",
    ]
    [project.optional-dependencies]
    more = ["kept-of-nobody"]
    test = ["second-of-nobody~=2.0"]
    docs = ["sphinx-of-nobody"]
    vision = ["third-of-nobody", "fourth-of-nobody @ https://example.org/fourth.zip"]
    all = ["third-of-nobody", "fifth-of-nobody", "sixth-of-nobody"]
    [dependency-groups]
    lint = ["linter-of-nobody"]
"""


@pytest.fixture
def far(pytester: pytest.Pytester) -> pytest.Pytester:
    """Have a project, and a far side that works in a copy of it."""
    write_ini(pytester)
    pytester.makepyprojecttoml(PROJECT)
    return pytester


def write_ini(pytester: pytest.Pytester, *lines: str) -> None:
    pytester.makeini("\n".join(["[pytest]", f"remotegpu_python = {sys.executable}", *lines]))


def install(site: Path, project: str, module: str, *requires: str) -> None:
    """Have a package installed in a folder."""
    metadata = site / f"{project.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    lines = [f"Name: {project}", "Version: 1.0", *(f"Requires-Dist: {it}" for it in requires)]
    (metadata / "METADATA").write_text("\n".join([*lines, ""]), encoding="utf-8")
    (metadata / "top_level.txt").write_text(f"{module}\n", encoding="utf-8")
    (site / f"{module}.py").touch()


def named(result: pytest.RunResult) -> str:
    """Give the one line that names them."""
    [line] = [line for line in said(result).splitlines() if HEAD in line]
    return line


def test_all_are_named_once_though_tests_fail_one_after_the_other(far: pytest.Pytester) -> None:
    far.makepyfile(TESTS)
    result = run(far, FAR, "--remote-json=run.json")
    result.assert_outcomes(failed=2, passed=1)
    expected = (
        f"{HEAD}first-of-nobody, kept-of-nobody (pyproject.toml), second-of-nobody "
        f"(pyproject.toml[test]); {PIP} 'First-of.Nobody>=1.5' kept-of-nobody "
        "'second-of-nobody~=2.0'"
    )
    assert named(result) == f"note: {expected}"
    assert expected in json.loads((far.path / "run.json").read_text("utf-8"))["notes"]


def test_of_extras_and_groups_that_nobody_takes_the_smallest_counts_that_has_it(
    far: pytest.Pytester,
) -> None:
    write_ini(far, "remotegpu_requirements = none")
    far.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_one(): import third_of_nobody

        @pytest.mark.gpu
        def test_two(): import linter_of_nobody
    """)
    line = named(run(far, FAR))
    assert "third-of-nobody, fourth-of-nobody (pyproject.toml[vision])" in line
    assert "linter-of-nobody (pyproject.toml[group:lint])" in line
    assert (
        "pip install third-of-nobody linter-of-nobody, and install fourth-of-nobody from " in line
    )
    assert "first" not in line
    assert "sphinx" not in line
    assert "sixth" not in line


@pytest.mark.parametrize("collects", ["far", "here"])
def test_a_file_that_can_not_be_imported(far: pytest.Pytester, collects: str) -> None:
    far.makepyfile("""
        import pytest
        import first_of_nobody

        @pytest.mark.gpu
        def test_one(): pass
    """)
    result = run(far, FAR, "-o", f"remotegpu_collect={collects}")
    result.assert_outcomes(errors=1)
    if collects == "far":  # else the far side is not asked
        assert named(result).startswith(f"note: {HEAD}first-of-nobody, kept-of-nobody")
    else:
        assert HEAD not in said(result)


@pytest.mark.parametrize("collects", ["far", "here"])
def test_a_file_that_can_be_imported_here_alone(
    far: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, collects: str
) -> None:
    site = far.path.parent / f"{far.path.name}-lib" / "site-packages"
    install(site, "First.of_nobody", "brought")
    monkeypatch.setenv("PYTHONPATH", str(site))
    far.makepyfile("""
        import brought
        import pytest

        @pytest.mark.gpu
        def test_one(): pass
    """)
    result = run(far, FAR, "-o", f"remotegpu_collect={collects}")
    assert named(result).startswith(f"note: {HEAD}first-of-nobody, kept-of-nobody")


@pytest.mark.parametrize("collects", ["far", "here"])
def test_a_conftest_that_does_not_load(
    far: pytest.Pytester, collects: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = far.path.parent / f"{far.path.name}-lib" / "site-packages"
    install(site, "first-of-nobody", "first_of_nobody")
    monkeypatch.setenv("PYTHONPATH", str(site))
    far.makeconftest("import first_of_nobody")
    far.makepyfile(TESTS)
    result = run(far, FAR, "-o", f"remotegpu_collect={collects}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert named(result).partition(HEAD)[2].startswith("first-of-nobody, kept-of-nobody")


def test_several_processes_say_it_once(far: pytest.Pytester) -> None:
    far.makepyfile(
        test_a="""
            import pytest

            @pytest.mark.gpu
            def test_one(): import first_of_nobody
        """,
        test_b="""
            import pytest

            @pytest.mark.gpu
            def test_two(): import third_of_nobody
        """,
    )
    result = run(far, FAR, "-n2", "--dist=loadfile")
    result.assert_outcomes(failed=2)
    line = named(result)
    assert "first-of-nobody, kept-of-nobody (pyproject.toml)" in line
    assert "third-of-nobody, fourth-of-nobody (pyproject.toml[vision])" in line


def test_several_processes_that_collect_nothing_say_it_once(far: pytest.Pytester) -> None:
    far.makepyfile("""
        import pytest
        import first_of_nobody

        @pytest.mark.gpu
        def test_one(): pass
    """)
    result = run(far, FAR, "-n2", "-o", "remotegpu_collect=far")
    assert "first-of-nobody, kept-of-nobody (pyproject.toml)" in named(result)


def test_ranks_of_one_test(far: pytest.Pytester) -> None:
    far.makepyfile("""
        import pytest

        @pytest.mark.gpu(2, launcher="torchrun")
        def test_one(rank):
            if rank == 1:
                import first_of_nobody
    """)
    result = run(far, FAR.replace("GPUS=1", "GPUS=2"))
    result.assert_outcomes(failed=1)
    assert "first-of-nobody, kept-of-nobody (pyproject.toml)" in named(result)


def test_ranks_whose_conftest_does_not_load(
    far: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = far.path.parent / f"{far.path.name}-lib" / "site-packages"
    install(site, "first-of-nobody", "first_of_nobody")
    monkeypatch.setenv("PYTHONPATH", str(site))
    far.makeconftest("import first_of_nobody")
    far.makepyfile("""
        import pytest

        @pytest.mark.gpu(2, launcher="torchrun")
        def test_one(rank): pass
    """)
    result = run(far, FAR.replace("GPUS=1", "GPUS=2"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert named(result).partition(HEAD)[2].startswith("first-of-nobody, kept-of-nobody")


def test_the_far_interpreter_that_is_this_one(far: pytest.Pytester) -> None:
    far.makepyfile(TESTS)
    assert f"{HEAD}first-of-nobody, kept-of-nobody (pyproject.toml)" in named(run(far, CPU))


def test_nothing_is_said_where_no_module_was_lacking(far: pytest.Pytester) -> None:
    far.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_fails(): assert not "No module of mine"

        @pytest.mark.gpu
        def test_of_the_project(): raise ModuleNotFoundError("No module named 'lib_of_ours'")

        @pytest.mark.gpu
        def test_of_python(): raise ModuleNotFoundError("No module named '_tkinter'")

        @pytest.mark.gpu
        def test_skipped(): pytest.importorskip("first_of_nobody")
    """)
    far.mkdir("lib_of_ours")
    run(far, FAR).assert_outcomes(failed=3, skipped=1)
    assert HEAD not in said(run(far, FAR))


def test_nothing_is_said_where_all_that_is_declared_is_there(far: pytest.Pytester) -> None:
    lib = far.mkdir("lib")
    install(lib, "first-of.nobody", "whatever")
    (lib / "kept_of_nobody.py").touch()  # which no metadata knows of
    install(lib, "second-of-nobody", "other")
    write_ini(far, "pythonpath = lib")
    far.makepyfile(TESTS)
    result = run(far, FAR)
    result.assert_outcomes(failed=2, passed=1)
    assert "host lacks: second_of_nobody" in said(result)
    assert HEAD not in said(result)


def test_an_extra_is_there_only_with_what_it_asks_for(
    far: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = ["fast-of-nobody; extra == 'fast'", "base-of-nobody", "first[fast]; extra == 'all'"]
    site = far.path.parent / f"{far.path.name}-lib" / "site-packages"
    install(site, "first", "first", *needs)
    install(far.mkdir("lib"), "first", "first", *needs)
    monkeypatch.setenv("PYTHONPATH", str(site))
    far.makepyprojecttoml("[project]\nname = 'mine'\ndependencies = ['first', 'first[all]>=1']\n")
    write_ini(far, "pythonpath = lib")
    far.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_one(): import fast_of_nobody
    """)
    expected = f"{HEAD}first[all] (pyproject.toml); {PIP} 'first[all]>=1'"
    assert named(run(far, FAR)) == f"note: {expected}"


def test_requirements_files_count_by_their_names(far: pytest.Pytester) -> None:
    (far.path / "pyproject.toml").unlink()
    far.mkdir("lists")
    far.makefile(".txt", requirements="first_of_nobody\n-r lists/more.txt\n-c limits.txt\n")
    far.makefile(".txt", limits="limit-of-nobody<3\n")
    far.makefile(".txt", **{"requirements-dev": "second_of_nobody\nlinter-of-nobody\n"})
    far.makefile(".txt", **{"requirements-docs": "sphinx-of-nobody\n"})
    (far.path / "lists" / "more.txt").write_text("--pre\nmore-of-nobody ; python_version>'3'\n")
    far.makepyfile(TESTS)
    line = named(run(far, FAR))
    assert "first-of-nobody, more-of-nobody (requirements.txt), " in line
    assert "second-of-nobody, linter-of-nobody (requirements-dev.txt); " in line
    assert "limit" not in line
    assert "sphinx" not in line


@pytest.mark.parametrize(
    "text", ["[project", "project = 3", "[project]\ndependencies = 3", "[project]\nname = 'mine'"]
)
def test_a_project_that_nobody_can_read_declares_nothing(far: pytest.Pytester, text: str) -> None:
    (far.path / "pyproject.toml").write_text(f"{text}\n", encoding="utf-8")
    far.makepyfile(TESTS)
    result = run(far, "-c", "tox.ini", "--rootdir=.", FAR)
    result.assert_outcomes(failed=2, passed=1)
    assert HEAD not in said(result)


def test_a_far_side_that_has_patched_what_it_looks_at_says_nothing(far: pytest.Pytester) -> None:
    far.makeconftest("""
        import os
        import pytest

        @pytest.fixture(scope="session", autouse=True)
        def broken():
            kept, os.listdir = os.listdir, None
            yield
            os.listdir = kept
    """)
    far.makepyfile(TESTS)
    result = run(far, FAR)
    result.assert_outcomes(failed=2, passed=1)
    assert HEAD not in said(result)


def test_what_a_test_hides_while_it_runs_is_not_taken_to_be_lacking(far: pytest.Pytester) -> None:
    install(far.mkdir("lib"), "first-of-nobody", "first_of_nobody")
    write_ini(far, "pythonpath = lib")
    far.makepyfile("""
        import sys
        import pytest

        @pytest.mark.gpu
        def test_one(monkeypatch):
            monkeypatch.setattr(sys, "path", [])
            import second_of_nobody
    """)
    line = named(run(far, FAR))
    assert "first-of-nobody" not in line
    assert "second-of-nobody" in line
