"""The hooks for other plugins, and which variables reach a far side on another host."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from .running import CPU, run, said

CONFTEST = """
    import os
    import pathlib
    import pytest

    def note(name, *values):
        if "REMOTEGPU_WORKER" in os.environ:
            name = "there " + name
        with pathlib.Path(os.environ["TRACE"]).open("a") as file:
            print(repr((name, *values)), file=file)

    def pytest_remotegpu_environment(config, environment):
        note("environment", type(config).__name__, environment.get("FROM_SHELL"))
        assert "HOME" in environment
        environment["FROM_HOOK"] = "hook"
        environment.pop("UNWANTED", None)

    def pytest_remotegpu_order(config, order):
        note("order", order["gpus"], sorted(order), type(order["args"]).__name__, order["ids"])
        order["variables"]["GPUS"] = str(order["gpus"])
        order["args"] += ["-o", "xfail_strict=true"]

    def pytest_remotegpu_result(item, result):
        phases = [report.when for report in result.reports]
        note("result", item.nodeid, result.worker, result.shape.count, result.gpu, phases)
        for report in result.reports:
            report.user_properties.append(("seen", item.name))

    def pytest_remotegpu_summary(config, summary):
        note("summary", summary.where, summary.real, [s.count for s in summary.shapes])
        summary.note("a note of the project's")

    def pytest_runtest_logreport(report):
        if report.when == "call":
            note("logreport", report.nodeid, dict(report.user_properties).get("seen"))
"""
TESTS = """
    import os
    import pytest

    @pytest.mark.gpu
    def test_one(pytestconfig):
        assert os.environ["FROM_HOOK"] == "hook"
        assert os.environ["GPUS"] == "1"
        assert "UNWANTED" not in os.environ
        assert pytestconfig.getini("xfail_strict") is True

    @pytest.mark.gpu(2)
    def test_two():
        assert os.environ["GPUS"] == "2"

    def test_here():
        assert "FROM_HOOK" not in os.environ
"""


def notes(path: Path, name: str) -> list[tuple[object, ...]]:
    """Give what the hook *name* has noted, in order."""
    found = [ast.literal_eval(line) for line in path.read_text().splitlines()]
    return [tuple(values) for first, *values in found if first == name]


@pytest.mark.parametrize("collects", ["far", "here"])
def test_hooks_are_called_with_what_they_promise(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, collects: str
) -> None:
    """A file that asks for different GPUs is collected by a worker that has none and no tests."""
    trace = tmp_path / "trace"
    for name, value in {"TRACE": str(trace), "FROM_SHELL": "shell", "UNWANTED": "1"}.items():
        monkeypatch.setenv(name, value)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_it=TESTS)
    result = pytester.runpytest_inprocess(CPU, "-o", f"remotegpu_collect={collects}")
    result.assert_outcomes(passed=3)
    assert notes(trace, "environment") == [("Config", "shell")]
    keys = ["args", "gpus", "ids", "variables"]
    collecting = [(0, keys, "list", ())] if collects == "far" else []
    assert sorted(notes(trace, "order"), key=repr) == [
        *collecting,
        (1, keys, "list", ("test_it.py::test_one",)),
        (2, keys, "list", ("test_it.py::test_two",)),
    ]
    phases = ["setup", "call", "teardown"]
    assert sorted((x for x, *_ in notes(trace, "result")), key=repr) == [
        "test_it.py::test_one",
        "test_it.py::test_two",
    ]
    for nodeid, worker, count, gpu, seen in notes(trace, "result"):
        assert str(worker).startswith("local-")
        assert count == (1 if nodeid == "test_it.py::test_one" else 2)
        assert gpu == ("1 GPU (pretend)" if count == 1 else "2 GPUs (pretend)")
        assert seen == phases
    assert set(notes(trace, "logreport")) == {
        ("test_it.py::test_one", "test_one"),
        ("test_it.py::test_two", "test_two"),
        ("test_it.py::test_here", None),
    }
    assert notes(trace, "summary") == [("this host's CPU, 2 pretend GPUs", False, [1, 2])]
    assert "note: a note of the project's" in said(result)
    assert not [line for line in trace.read_text().splitlines() if "there result" in line]
    assert {first for first, _ in notes(trace, "there logreport")} == {
        "test_it.py::test_one",
        "test_it.py::test_two",
    }


def test_hooks_that_nobody_knows_are_refused(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("def pytest_remotegpu_result(item, results): pass")
    pytester.makepyfile("def test_here(): pass")
    result = pytester.runpytest_inprocess()
    assert result.ret != pytest.ExitCode.OK


VARIABLES = """
    import os
    import pytest

    @pytest.mark.gpu
    def test_far():
        assert os.environ["HF_TOKEN"][::-1] == "fh-fo-t3rc3s"
        assert os.environ["NCCL_DEBUG"] == "INFO"
        assert os.environ["CI"] == "yes"
        assert "NOT_NAMED" not in os.environ
        assert os.environ["FAR_ONLY"] == "1"
        print("nothing to see")
        assert 0, "on purpose"
"""


def test_only_named_variables_reach_another_host(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "HF_TOKEN": "s3cr3t-of-hf",
        "NCCL_DEBUG": "INFO",
        "NOT_NAMED": "s3cr3t-of-mine",
        "CI": "yes",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    pytester.makeini(
        f"[pytest]\nremotegpu_python = {sys.executable}\nremotegpu_env =\n  HF_TOKEN\n  NCCL_*\n"
    )
    pytester.makepyfile(VARIABLES)
    # `env -i` stands for another host: nothing gets there but what the order holds.
    far = f"command:env -i PATH={sys.prefix}/bin FAR_ONLY=1 PYTEST_REMOTEGPU_PRETEND_GPUS=1"
    result = run(pytester, f"--remote={far}", "--junitxml=j.xml", "-l", "--remote-debug", "-rA")
    result.assert_outcomes(failed=1)
    assert "on purpose" in said(result)
    assert "s3cr3t" not in said(result)
    assert "s3cr3t" not in pytester.path.joinpath("j.xml").read_text()
    shown = re.sub(r"=\S+", "=***", far)
    assert said(result).count(f"remote: {shown}") == 1
    assert f"{far}, {far}" not in said(result)
    plan = pytester.runpytest_inprocess(f"--remote={far}", "--remote-plan")
    assert "s3cr3t" not in said(plan)
    assert "HF_TOKEN" in said(plan)
