"""What a plain run can't show, or ends by: tests that take their process along."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

LOAD = ("remotegpu", "rerunfailures", "timeout", "allure_pytest", "xdist", "pytest_mock")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Give a project whose sessions load no plugin that is not named."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)  # pytest-benchmark goes by these
    return pytester


def run(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Run all tests of the project on the far side."""
    plugins = [word for name in LOAD for word in ("-p", name)]
    shipped = ("--remote=local:cpu", "--remote-all", "--junitxml=junit.xml")
    return project.runpytest_subprocess(*plugins, *shipped, *options, timeout=90)


def runs_of(project: pytest.Pytester) -> list[str]:
    """Give what the tests wrote as they began, in order."""
    return (project.path / "began").read_text().split()


DIES = """
    import os
    import signal

    import pytest

    def begin(name):
        with open("began", "a") as file:
            print(name, file=file)
        return open("began").read().split().count(name)

    @pytest.mark.flaky(reruns=2)
    def test_dies_once():
        print("about to")
        if begin("once") == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def test_between():
        begin("between")

    @pytest.mark.flaky(reruns=1)
    def test_dies_always():
        begin("always")
        os._exit(3)

    @pytest.mark.flaky(reruns=2)
    def test_fails_and_dies():
        if begin("both") == 1:
            assert False, "the first time"
        os._exit(4)

    def test_dies_unasked():
        begin("unasked")
        os._exit(5)

    @pytest.mark.flaky(reruns=2, condition="1 > 2")
    def test_dies_under_no_condition():
        begin("condition")
        os._exit(7)

    @pytest.mark.flaky(reruns=2, only_rerun=["ValueError"])
    def test_dies_unlike():
        begin("unlike")
        os._exit(6)
"""


@pytest.mark.parametrize("more", [(), ("-x",), ("-n1",)], ids=str)
def test_a_test_that_dies_is_run_again_where_that_is_asked_for(
    project: pytest.Pytester, more: tuple[str, ...]
) -> None:
    project.makepyfile(DIES)
    result = run(project, "-rR", "-v", *more)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    if more == ("-x",):
        assert runs_of(project) == ["once"] * 2 + ["between"] + ["always"] * 2
        result.assert_outcomes(passed=2, failed=1)
        return
    assert runs_of(project) == [
        *("once", "once", "between", "always", "always", "both", "both", "both"),
        *("unasked", "condition", "unlike"),
    ]
    result.stdout.fnmatch_lines(["*5 failed, 2 passed, *4 rerun*"])
    shown = re.findall(r"^RERUN \S+::(\w+)", result.stdout.str(), re.MULTILINE)
    assert sorted(shown) == sorted(AGAIN)
    cases = ET.parse(project.path / "junit.xml").getroot().iter("testcase")  # noqa: S314 -- ours
    kinds = {str(case.get("name")): {child.tag for child in case} for case in cases}
    assert "failure" not in kinds["test_dies_once"]
    assert all("failure" in kinds[name] for name in kinds if name not in PASSED)


AGAIN = ["test_dies_once", "test_dies_always", "test_fails_and_dies", "test_fails_and_dies"]
PASSED = ("test_dies_once", "test_between")


def test_a_time_out_that_ends_the_process_costs_that_test_only(project: pytest.Pytester) -> None:
    """A plain session ends with it."""
    project.makepyfile("""
        import time
        import pytest

        def test_before(): pass

        @pytest.mark.timeout(0.3, method="thread")
        def test_sleeps():
            print("before it sleeps")
            time.sleep(60)

        def test_after(): pass
    """)
    result = run(project)
    result.assert_outcomes(passed=2, failed=1)
    assert "time.sleep(60)" in result.stdout.str()
    assert "before it sleeps" in result.stdout.str()


@pytest.mark.parametrize("more", [(), ("-n1",)], ids=str)
def test_results_of_allure_are_those_of_the_far_side_only(
    project: pytest.Pytester, more: tuple[str, ...]
) -> None:
    project.makepyfile("def test_one(): pass\ndef test_two(): assert False")
    run(project, "--alluredir=results", *more)
    found = [json.loads(file.read_text()) for file in Path(project.path, "results").glob("*.json")]
    assert sorted((one["name"], one["status"]) for one in found if "status" in one) == [
        ("test_one", "passed"),
        ("test_two", "failed"),
    ]


def test_benchmarks_of_both_sides_are_in_one_table(project: pytest.Pytester) -> None:
    """With the machine that measured, where that is another one."""
    project.makeconftest("""
        import os

        def pytest_benchmark_update_machine_info(machine_info):
            machine_info["node"] = os.environ.get("REMOTEGPU_WORKER", "mine")
    """)
    project.makepyfile("""
        import pytest

        def test_here(benchmark): benchmark(sum, [1])

        @pytest.mark.gpu
        def test_far(benchmark): benchmark(sum, [1])
    """)
    quick = ("--benchmark-json=b.json", "--benchmark-min-rounds=2", "--benchmark-max-time=0.01")
    for options, machine, others in (((), "mine", ["local-1"]), (("-k", "far"), "mine", None)):
        shipped = ("-p", "remotegpu", "-p", "benchmark", "--remote=local:cpu", *options)
        result = project.runpytest_subprocess(*shipped, *quick, timeout=90)
        assert result.ret == 0
        found = json.loads((project.path / "b.json").read_text())
        names = {one["name"] for one in found["benchmarks"]}
        assert names == ({"test_far"} if options else {"test_here", "test_far"})
        assert all(f"{name} " in result.stdout.str() for name in names)
        machines = found["machine_info"].get("remotegpu")
        assert found["machine_info"]["node"] == machine
        assert (machines and [each["node"] for each in machines]) == others


def test_a_plugin_that_takes_it_for_a_process_of_xdist_can_write_its_results(
    project: pytest.Pytester,
) -> None:
    project.makeconftest("""
        def pytest_sessionfinish(session):
            if hasattr(session.config, "workerinput"):
                session.config.workeroutput["mine"] = 1
    """)
    project.makepyfile("def test_one(): pass")
    result = run(project)
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=1)


def test_dumps_of_memray_come_back_and_are_not_read(project: pytest.Pytester) -> None:
    project.makepyfile("def test_takes():\n    assert bytearray(2**20)")
    project.makepyfile(test_more="def test_more(): pass")
    away = ("--remote=command:env", "-o", f"remotegpu_python={sys.executable}", "--remote-all")
    named = ("--memray", "--memray-bin-path=bins", "--memray-bin-prefix=it")
    result = project.runpytest_subprocess(
        "-p", "remotegpu", "-p", "memray", *away, *named, timeout=90
    )
    result.assert_outcomes(passed=2)
    kept = Path(project.path, "bins", "far")
    assert len(list(kept.glob("it-*.bin"))) == 2
    assert len(list(kept.glob("metadata/*.metadata"))) == 2
    assert "Created 0 binary dumps" in result.stdout.str()


def test_the_page_names_what_is_tried() -> None:
    """Each plugin that is installed for these tests stands on the page, with its version."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "plugins.md").read_text("utf-8")
    section = (root / "tox.ini").read_text("utf-8").partition("[testenv:ecosystem]")[2]
    pins = re.findall(
        r"^    ([\w-]+)(?:\[\w+\])?==([\d.]+)$", section.partition("commands")[0], re.MULTILINE
    )
    assert len(pins) > 20, os.linesep.join(map(str, pins))
    missing = [name for name, version in pins if f"| {name} {version} |" not in page]
    assert missing == ["trio"]  # the other event loop of anyio's tests
