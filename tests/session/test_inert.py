"""Merely installed it changes nothing; nor does it in a worker, or in a pytest run by a test."""

from __future__ import annotations

import re

import pytest

from .running import own_marker, run, said

WITHOUT = ("-p", "no:remotegpu")


@pytest.fixture(autouse=True)
def _no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def shown(pytester: pytest.Pytester, *args: str) -> list[str]:
    """Give what a session prints, less its times and the list of plugins."""
    lines = pytester.runpytest_inprocess(*args).outlines
    return [re.sub(r"in \d.*s", "", line) for line in lines if not line.startswith("plugins:")]


def markers(pytester: pytest.Pytester, *args: str) -> set[str]:
    """Give the lines with which a session names its markers."""
    return {line for line in shown(pytester, "--markers", *args) if line.startswith("@pytest.mark")}


OWN_TESTS = """
    import pytest

    @pytest.mark.gpu(memory=8)
    def test_own_argument(): pass

    @pytest.mark.gpu("A100", 2)
    def test_own_way(gpu): assert gpu == "the project's"

    @pytest.mark.gpu
    def test_bare(): assert False

    @pytest.fixture
    def gpu(): return "the project's"
"""


@pytest.mark.parametrize("where", ["ini", "conftest"])
def test_a_project_with_a_gpu_marker_of_its_own(where: str, pytester: pytest.Pytester) -> None:
    own_marker(pytester, where)
    pytester.makepyfile(OWN_TESTS)
    with_it = shown(pytester, "--strict-markers", "-rA", "-W", "error")
    assert with_it[-1].strip("= ") == "1 failed, 2 passed"
    assert with_it == shown(pytester, *WITHOUT, "--strict-markers", "-rA", "-W", "error")
    (added,) = markers(pytester) - markers(pytester, *WITHOUT)
    assert added.startswith("@pytest.mark.gpu_benchmark(")


def test_a_project_that_never_registered_its_gpu_marker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu(memory=8)
        def test_other_arguments(): pass

        def test_unmarked(): pass
    """)
    result = pytester.runpytest_inprocess("-p", "no:warnings")
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize("action", ["'store_true'", "'store'"])
def test_a_project_with_a_remote_option_of_its_own(action: str, pytester: pytest.Pytester) -> None:
    conftest = f"""
        import pytest

        def pytest_addoption(parser):
            parser.addoption("--remote", action={action}, default=None, help="the project's remote")
            parser.addoption("--remote-debug", action="store_true", help="the project's debug")

        @pytest.fixture
        def remote(pytestconfig):
            return pytestconfig.getoption("--remote")
    """
    pytester.makeconftest(conftest)
    pytester.makepyfile("""
        import os

        def test_it(remote, pytestconfig):
            assert remote in (True, "local:cpu")
            assert pytestconfig.option.remote_debug
            assert "REMOTEGPU_WORKER" not in os.environ
    """)
    option = "--remote" if "true" in action else "--remote=local:cpu"
    result = pytester.runpytest_inprocess(option, "--remote-debug")
    result.assert_outcomes(passed=1)
    assert "remote: " not in said(result)
    text = said(pytester.runpytest_inprocess("--help"))
    assert "the project's remote" in text
    assert "the project's debug" in text
    assert "where tests with the gpu mark run" not in text


def test_our_alias_works_beside_a_remote_option_of_the_projects(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest("def pytest_addoption(parser): parser.addoption('--remote')")
    pytester.makepyfile("""
        import os
        import pytest

        @pytest.mark.gpu
        def test_far(pytestconfig):
            assert os.environ["REMOTEGPU_WORKER"]
            assert pytestconfig.getoption("--remote") == "browser"
    """)
    result = run(pytester, "--remotegpu=local:cpu", "--remote=browser")
    result.assert_outcomes(passed=1)


def test_a_deep_conftest_with_a_remote_option(pytester: pytest.Pytester) -> None:
    deep = pytester.mkdir("deep")
    deep.joinpath("conftest.py").write_text(
        "def pytest_addoption(parser): parser.addoption('--remote')\n"
    )
    deep.joinpath("test_deep.py").write_text("def test_deep(): pass\n")
    pytester.makepyfile("def test_top(): pass")
    pytester.runpytest_inprocess("-W", "error").assert_outcomes(passed=2)
    pytester.runpytest_inprocess("deep", "--remote=x", "-W", "error").assert_outcomes(passed=1)


def test_a_project_without_any_of_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_a(tmp_path): assert list(tmp_path.iterdir()) == []
        def test_b(): assert False, "as ever"
    """)
    assert shown(pytester, "-rA") == shown(pytester, *WITHOUT, "-rA")
    gpu, benchmark = sorted(markers(pytester) - markers(pytester, *WITHOUT))
    assert gpu.startswith("@pytest.mark.gpu(count=1, *, type=None")
    assert benchmark.startswith("@pytest.mark.gpu_benchmark(*, rounds=")
    help_ = set(shown(pytester, "--help")) - set(shown(pytester, *WITHOUT, "--help"))
    options = {
        word.partition("=")[0] for line in help_ for word in line.split() if word[:2] == "--"
    }
    assert {"--remote", "--remotegpu", "--remote-all", "--gpu-required", "--remote-plan",
            "--remote-debug", "--remote-artifacts"} <= options  # fmt: skip


def test_a_marked_test_is_skipped_with_the_way_to_run_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_one(): assert False

        @pytest.mark.gpu(2)
        class TestTwo:
            def test_two(self): assert False

        @pytest.mark.skip(reason="another reason")
        def test_other(): pass

        def test_here(): pass
    """)
    result = run(pytester, "-rs", "--strict-markers", "-W", "error")
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=1, skipped=3)
    text = said(result)
    assert re.search(r"SKIPPED \[1\] .*needs 1 GPU, this host shows 0; .*--remote=", text)
    assert re.search(r"SKIPPED \[1\] .*needs 2 GPUs, this host shows 0; .*--remote=", text)
    assert "2 gpu tests skipped for lack of GPUs on this host" in text
    quiet = pytester.runpytest_inprocess("-k", "here or other")
    assert "for lack of GPUs" not in said(quiet)


def test_it_imports_little_where_it_is_not_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_modules():
            ours = {name for name in sys.modules if name.startswith("pytest_remotegpu.")}
            heavy = {"session", "control", "controller", "shipping", "backends", "snapshot"}
            assert not {name.split(".")[1] for name in ours} & heavy
            assert not {"cloudpickle", "torch", "modal"} & set(sys.modules)
    """)
    run(pytester).assert_outcomes(passed=1)


def test_a_worker_never_becomes_a_controller(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own switches reach it by every way there is, and it ships nothing."""
    monkeypatch.setenv("PYTEST_REMOTEGPU", "local:cpu")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--remote=local:cpu")
    pytester.makeini("[pytest]\nremotegpu = local:cpu\naddopts = --remote=local:cpu\n")
    pytester.makeconftest("""
        import os

        def pytest_load_initial_conftests(args):
            args.append("--remote=local:cpu")

        def pytest_configure(config):
            if "REMOTEGPU_WORKER" in os.environ:
                assert not config.pluginmanager.has_plugin("remotegpu-controller")
    """)
    pytester.makepyfile("""
        import os
        import subprocess
        import sys
        import pytest

        INNER = "from pytest import mark\\n@mark.gpu\\ndef test_in(): pass\\n"

        @pytest.mark.gpu
        def test_depth():
            assert os.environ["REMOTEGPU_WORKER"] == "local-1"
            assert not [name for name in os.environ if name.startswith("PYTEST_REMOTEGPU")]

        @pytest.mark.gpu
        def test_nested(tmp_path):
            (tmp_path / "test_inner.py").write_text(INNER)
            command = [sys.executable, "-m", "pytest", "-rA", "--remote=local:cpu"]
            done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
            assert "remote:" not in done.stdout, done.stdout
            assert "needs 1 GPU" in done.stdout, done.stdout
            assert done.returncode == 0

        @pytest.mark.gpu
        def test_pytester(pytester):
            pytester.makepyfile(INNER)
            result = pytester.runpytest("--remote=local:cpu")
            assert "remote:" not in result.stdout.str()
            assert result.ret == 0
    """)
    result = run(pytester, "-p", "pytester")
    result.assert_outcomes(passed=3)
    assert said(result).count("1 GPU   1 worker") == 1


def test_a_path_behind_a_remote_flag_of_the_projects_stays_a_path(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(
        "def pytest_addoption(parser): parser.addoption('--remote', action='store_true')"
    )
    checks = pytester.mkdir("checks")
    checks.joinpath("conftest.py").write_text(
        "def pytest_addoption(parser): parser.addoption('--mine')\n"
    )
    checks.joinpath("test_in.py").write_text("def test_in(): pass\n")
    pytester.makepyfile("def test_out(): pass")
    result = pytester.runpytest_inprocess("--remote", "checks", "--mine=1")
    result.assert_outcomes(passed=1)


def test_a_word_that_is_too_long_for_a_path_is_none_of_its_business(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("def test_one(): pass\n\ndef test_two(): pass")
    result = run(pytester, "-k", " or ".join(["test_one"] * 500))
    result.assert_outcomes(passed=1, deselected=1)
    refused = run(pytester, "--remote", "modal:" + ",".join(["T5"] * 500))
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    assert "'T5', which is no GPU of Modal's" in said(refused)
