"""``--remote-plan``: what would go where, which settings hold and who said so; nothing runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .running import CPU, FakePython, run, said

COLLECTS_HERE = ("-o", "remotegpu_collect=here")
TESTS = """
    import pathlib
    import pytest

    def ran(name):
        pathlib.Path(name).touch()

    @pytest.mark.gpu
    def test_one(): ran("one.ran")

    def test_here(): ran("here.ran")

    @pytest.mark.gpu(2)
    def test_two(): ran("two.ran")
"""


@pytest.fixture
def fake(pytester: pytest.Pytester, tmp_path: Path) -> FakePython:
    """Make a project with three tests that leave a file each."""
    pytester.makepyfile(TESTS)
    return FakePython(tmp_path)


def setting(result: pytest.RunResult, name: str) -> list[str]:
    """Give the value and the origin of a setting, as the plan shows them."""
    (line,) = [line for line in result.outlines if line.startswith(f"  {name} ")]
    value, _, origin = line.removeprefix(f"  {name} ").strip().rpartition(" (")
    return [value.strip(), origin.removesuffix(")")]


def places(result: pytest.RunResult) -> dict[str, str]:
    """Give the place of each test, as the plan shows them."""
    start = result.outlines.index(next(line for line in result.outlines if "far side:" in line))
    lines = [line for line in result.outlines[start:] if "::" in line]
    return {line.rpartition("::")[2]: " ".join(line.split()[:-1]) for line in lines}


@pytest.mark.parametrize("collects", ["far", "here"])
def test_it_shows_all_and_runs_nothing(
    pytester: pytest.Pytester, fake: FakePython, collects: str
) -> None:
    """Who collects there is the only one that is started, where anybody is."""
    own = COLLECTS_HERE if collects == "here" else ("-o", f"remotegpu_python={sys.executable}")
    python = ("-o", f"remotegpu_python={fake.path}")
    result = run(pytester, CPU, "--remote-plan", *python, *own)
    assert result.ret == pytest.ExitCode.OK
    assert places(result) == {
        "test_one": "far, 1 GPU",
        "test_here": "here",
        "test_two": "far, 2 GPUs",
    }
    text = said(result)
    assert "upload: nothing" in text
    assert "tests: 1 test on 1 GPU, 1 on 2 GPUs, 1 here" in text
    assert "passed" not in text
    assert not list(pytester.path.glob("*.ran"))
    assert not fake.started


def test_each_origin(
    pytester: pytest.Pytester, fake: FakePython, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini(
        "[pytest]\nremotegpu = local:cpu:2\nremotegpu_env = HF_*\n"
        f"remotegpu_max_upload = 2MiB\nremotegpu_python = {fake.path}\n"
        "remotegpu_collect = here\n"  # so that nothing has to start
    )
    plan = pytester.runpytest_inprocess("--remote-plan")
    assert setting(plan, "remote") == ["'local:cpu:2'", "ini file, remotegpu"]
    assert setting(plan, "env") == ["['HF_*']", "ini file, remotegpu_env"]
    assert setting(plan, "max_upload") == ["'2MiB'", "ini file, remotegpu_max_upload"]
    assert setting(plan, "max_artifact") == ["'256MiB'", "default"]
    assert setting(plan, "required") == ["False", "default"]
    monkeypatch.setenv("PYTEST_REMOTEGPU", "local:cpu:3")
    plan = pytester.runpytest_inprocess("--remote-plan")
    assert setting(plan, "remote") == ["'local:cpu:3'", "environment, PYTEST_REMOTEGPU"]
    assert "3 pretend GPUs" in said(plan)
    plan = pytester.runpytest_inprocess("--remote-plan", "--remote=local:cpu:4", "--remote-all",
                                        "--remote-artifacts=out", "--remote-debug")  # fmt: skip
    assert setting(plan, "remote") == ["'local:cpu:4'", "command line, --remote"]
    assert setting(plan, "all") == ["True", "command line, --remote-all"]
    assert setting(plan, "artifacts") == ["'out'", "command line, --remote-artifacts"]
    assert setting(plan, "debug") == ["True", "command line, --remote-debug"]
    assert places(plan)["test_here"] == "far, 1 GPU"
    plan = pytester.runpytest_inprocess("--remote-plan", "-o", "remotegpu_max_upload=3MiB")
    assert setting(plan, "max_upload") == ["'3MiB'", "ini file, remotegpu_max_upload"]
    assert not fake.started


def test_a_backend_that_sends_the_tree_says_how_much(
    pytester: pytest.Pytester, fake: FakePython
) -> None:
    Path(pytester.path, "data.bin").write_bytes(bytes(5000))
    Path(pytester.path, ".env").write_text("TOKEN=hush-hush")
    before = {path: path.stat().st_mtime_ns for path in pytester.path.iterdir()}
    ini = (*COLLECTS_HERE, "-o", f"remotegpu_python={fake.path}", "-p", "no:cacheprovider")
    plan = pytester.runpytest_inprocess("--remote=command:env", "--remote-plan", *ini)
    size = sum(Path(pytester.path, name).stat().st_size for name in ("data.bin",)) + next(
        path.stat().st_size for path in pytester.path.glob("test_*.py")
    )
    assert f"upload: 2 files, {size} bytes" in said(plan)
    assert "hush-hush" not in said(plan)
    plan = pytester.runpytest_inprocess("--remote=command:env", "--remote-plan", *ini, "-o",
                                        "remotegpu_exclude=*.bin")  # fmt: skip
    assert "upload: 1 files, " in said(plan) or "upload: 1 file, " in said(plan)
    plan = pytester.runpytest_inprocess("--remote=command:env", "--remote-plan", *ini, "-o",
                                        "remotegpu_max_upload=1KiB")  # fmt: skip
    assert plan.ret == pytest.ExitCode.USAGE_ERROR
    assert "data.bin" in said(plan)
    assert "remotegpu_max_upload" in said(plan)
    after = {path: path.stat().st_mtime_ns for path in pytester.path.iterdir()}
    assert {path.name for path in after} - {path.name for path in before} <= {"__pycache__"}
    assert not fake.started


def test_without_a_far_side(pytester: pytest.Pytester, fake: FakePython) -> None:
    plan = pytester.runpytest_inprocess("--remote-plan")
    assert plan.ret == pytest.ExitCode.OK
    assert setting(plan, "remote") == ["None", "default"]
    assert places(plan) == {
        "test_one": "here, 1 GPU",
        "test_here": "here",
        "test_two": "here, 2 GPUs",
    }
    assert not list(pytester.path.glob("*.ran"))
    assert not fake.started


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (["-k", "nothing_like_this"], pytest.ExitCode.NO_TESTS_COLLECTED),
        (["absent.py"], pytest.ExitCode.USAGE_ERROR),
    ],
)
def test_the_status_is_pytests(
    args: list[str], status: int, pytester: pytest.Pytester, fake: FakePython
) -> None:
    assert pytester.runpytest_inprocess(CPU, "--remote-plan", *args).ret == status
    assert not fake.started


def test_an_ill_formed_mark_is_none_of_a_plan(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.gpu(0)\ndef test_zero(): pass\n")
    plan = pytester.runpytest_inprocess(CPU, "--remote-plan")
    assert plan.ret == pytest.ExitCode.USAGE_ERROR
    assert "::test_zero: gpu(count=...)" in said(plan)
