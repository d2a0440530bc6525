"""Benchmarks in real sessions: plainly, through a worker, and in several processes."""

from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_remotegpu.bench import history
from session.running import CPU, run, said

ALL = "--remote-all"
WAYS = {
    "plain": (),
    "remote": (CPU, ALL),
    "xdist": ("-n2",),
    "remote xdist": ("-n2", CPU, ALL),
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
BASE = "--gpu-benchmark-compare=base.json"
TESTS = """
    import time
    import pytest

    pytestmark = pytest.mark.gpu_benchmark(rounds=15, warmup=1)

    def spin(seconds):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    def test_first(gpu_benchmark):
        result = gpu_benchmark(spin, args=(2e-4,), reference=lambda _: spin(4e-3), bytes=1000)
        assert result.faster_than("reference", by=1.01)

    @pytest.mark.gpu_benchmark(group="pairs")
    def test_second(gpu_benchmark, record_property):
        record_property("mine", 1)
        print("it says so")
        gpu_benchmark({"a": lambda: spin(3e-4), "b": lambda: spin(3e-4)})
        gpu_benchmark(lambda: spin(3e-4))

    def test_none():
        pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> Path:
    """Give a project with benchmarks."""
    pytester.makepyfile(test_it=TESTS)
    pytester.makeini("[pytest]\nfilterwarnings = error\naddopts = --strict-markers\n")
    return pytester.path


def changed(path: Path, factor: float) -> None:
    """Multiply all times of a baseline."""
    text = path.read_text()
    data = json.loads(text)
    for kept in data["benchmarks"]:
        for contestant in kept["benchmark"]["contestants"]:
            for timed in contestant["modes"].values():
                for key in "ms", "low", "high":
                    timed[key] *= factor
                timed["times"] = []
    path.write_text(json.dumps(data))


def cases(path: Path) -> dict[str, tuple[list[str], list[tuple[str, str]]]]:
    """Give what a junit file says of each test: its outcome's elements, its own properties."""
    root = ET.fromstring(path.read_text())  # noqa: S314 -- pytest has written it
    return {
        case.attrib["name"]: (
            [each.tag for each in case if each.tag != "properties"],
            [
                (each.attrib["name"], each.attrib["value"])
                for each in case.iter("property")
                if not each.attrib["name"].startswith("remotegpu")
            ],
        )
        for case in root.iter("testcase")
    }


@ways
def test_results_travel_as_data_and_as_a_table(
    pytester: pytest.Pytester, project: Path, way: tuple[str, ...]
) -> None:
    result = run(pytester, "-v", "--gpu-benchmark-json=out.json", "--remote-json=run.json", *way)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*= gpu benchmarks =*", "cpu (*)*"])
    result.stdout.re_match_lines_random(
        [
            r"test_it\.py::test_first",
            r"  contestant  wall  [\d.]+ \([\d.]+ to [\d.]+\) (us|ms)  x\d.* to .*  [\d.]+ MB/s",
            r"  reference   wall  [\d.]+ \([\d.]+ to [\d.]+\) ms +\d+ MB/s|  reference   wall .*",
            r"test_it\.py::test_second \[pairs\]",
            r"  a  wall  .*",
            r"  b  wall  .* x.*",
            r"test_it\.py::test_second \(2\) \[pairs\]",
            r"benchmarks written: 3 to out\.json",
        ]
    )
    data = json.loads((project / "out.json").read_text())
    assert data["format"] == "pytest-remotegpu/benchmarks"
    kept = {(each["test"], each["index"]): each for each in data["benchmarks"]}
    assert sorted(kept) == [
        ("test_it.py::test_first", 0),
        ("test_it.py::test_second", 0),
        ("test_it.py::test_second", 1),
    ]
    first = kept["test_it.py::test_first", 0]["benchmark"]
    times = first["contestants"][0]["modes"]["wall"]
    assert len(times["times"]) == 15
    assert times["ms"] >= 0.2
    assert first["contestants"][1]["modes"]["wall"]["ms"] >= 4
    assert first["environment"]["device"] == "cpu"
    whole = json.loads((project / "run.json").read_text())
    by_test = {each["id"].partition("::")[2]: each["benchmarks"] for each in whole["tests"]}
    assert {name: len(found) for name, found in by_test.items()} == {
        "test_first": 1,
        "test_second": 2,
        "test_none": 0,
    }
    assert by_test["test_first"][0]["contestants"][0]["modes"]["wall"]["times"] == times["times"]


@ways
def test_the_first_run_makes_the_baseline_and_later_ones_are_judged(
    pytester: pytest.Pytester, project: Path, way: tuple[str, ...]
) -> None:
    base = project / "base.json"
    result = run(pytester, BASE, *way)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["there was no baseline base.json, and now there is: 3 of 3"])
    changed(base, 100)
    before = base.read_bytes()
    result = run(pytester, BASE, *way)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["compared with base.json: 5 faster"])
    assert base.read_bytes() == before

    changed(base, 1e-4)
    before = base.read_bytes()
    written = ("--junitxml=junit.xml", "-o", "junit_family=xunit1", "--remote-json=run.json")
    result = run(pytester, BASE, *written, *way)
    result.assert_outcomes(passed=1, failed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*_ test_first _*",
            "slower than in the baseline base.json, by more than x1.05 and for certain:",
            "  contestant, wall: * now, * in the baseline: x* the time, x* for certain",
            "  reference, wall: * now, *",
            "if the new times are meant, run * --gpu-benchmark-json=base.json, which takes them*",
            "*= gpu benchmarks =*",
            "compared with base.json: 5 slower",
            "*2 failed, 1 passed*",
        ]
    )
    found = cases(project / "junit.xml")
    assert found["test_first"] == (["failure"], [])
    assert found["test_second"][1] == [("mine", "1")]
    assert "failure" in found["test_second"][0]
    assert found["test_none"] == ([], [])
    data = json.loads((project / "run.json").read_text())
    assert data["outcomes"] == {"failed": 2, "passed": 1}
    assert base.read_bytes() == before


@ways
def test_a_margin_that_is_not_kept_explains_itself(
    pytester: pytest.Pytester, way: tuple[str, ...]
) -> None:
    pytester.makepyfile("""
        import time

        def spin(seconds):
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                pass

        def test_it(gpu_benchmark):
            result = gpu_benchmark(lambda: spin(1e-3), reference=lambda: spin(1e-3), rounds=5)
            assert result.faster_than("reference", by=50)
    """)
    result = run(pytester, *way)
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines_random(
        [
            r"E +AssertionError: assert <contestant is x[\d.]+ \([\d.]+ to [\d.]+\) as fast as .*",
            r".* 50 is needed for certain: [\d.]+ \([\d.]+ to .*\) ms against .* ms, wall>",
            r"  contestant  wall  .*",  # it has been measured all the same
        ]
    )


def test_stopping_at_the_first_failure_counts_the_gate(
    pytester: pytest.Pytester, project: Path
) -> None:
    run(pytester, BASE)
    changed(project / "base.json", 1e-3)
    for way in (), (CPU, ALL):
        result = run(pytester, BASE, "-x", *way)
        result.assert_outcomes(failed=1)
        assert "stopping after 1 failures" in said(result)
    result = run(pytester, "--lf", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["test_it.py::test_first"])


def test_an_expected_failure_is_not_failed_again(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.xfail
        def test_it(gpu_benchmark):
            gpu_benchmark(lambda: sum(range(1000)), rounds=5)
    """)
    run(pytester, "--gpu-benchmark-json=base.json")
    changed(pytester.path / "base.json", 1e-3)
    result = run(pytester, BASE)
    result.assert_outcomes(xpassed=1)
    result.stdout.fnmatch_lines(["compared with base.json: 1 slower"])


def test_another_place_is_flagged_and_not_compared(
    pytester: pytest.Pytester, project: Path
) -> None:
    base = project / "base.json"
    run(pytester, BASE)
    changed(base, 1e-3)
    text = base.read_text().replace('"device": "cpu"', '"device": "NVIDIA X1"')
    base.write_text(text)
    result = run(pytester, BASE, "-k", "first")
    result.assert_outcomes(passed=1, deselected=2)
    result.stdout.fnmatch_lines(
        [
            "compared with base.json: 2 not compared",
            "  not compared: test_it.py::test_first, *: device is cpu now and *X1* (and 1 more)",
        ]
    )
    assert result.stdout.str().count("X1") == 1  # a reason is given once, however many it is of


@pytest.mark.usefixtures("project")
def test_a_gate_that_compares_nothing_says_so(pytester: pytest.Pytester) -> None:
    run(pytester, BASE)
    result = run(pytester, BASE, "-k", "none")
    result.assert_outcomes(passed=1, deselected=2)
    result.stdout.fnmatch_lines(
        [
            "*= gpu benchmarks =*",
            "compared with base.json: nothing, since no benchmark has run",
            "  not run: 3 of 3 in the baseline",
        ]
    )
    result = run(pytester, BASE, "-k", "first")
    result.stdout.fnmatch_lines(
        ["compared with base.json: [12] *", "  not run: 2 of 3 in the base*"]
    )
    assert "not run" not in said(run(pytester, BASE))


def test_a_session_that_has_stopped_makes_no_baseline(
    pytester: pytest.Pytester, project: Path
) -> None:
    pytester.makepyfile(test_it=TESTS.replace("gpu_benchmark({", "assert 0, ({"))
    result = run(pytester, BASE, "-x")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["there is no baseline base.json yet, and none was written: the *"])
    assert not (project / "base.json").exists()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("assert 0", "no benchmark has passed"),
        ("raise KeyboardInterrupt", "the session did not come to its end"),
    ],
)
def test_no_baseline_is_made_of_what_failed(
    pytester: pytest.Pytester, change: str, text: str
) -> None:
    pytester.makepyfile(f"""
        def test_it(gpu_benchmark):
            gpu_benchmark(lambda: sum(range(1000)), rounds=5)
            {"assert 0" if change == "assert 0" else ""}

        def test_then():
            {change}
    """)
    result = pytester.runpytest_subprocess(BASE)
    result.stdout.fnmatch_lines(
        [f"there is no baseline base.json yet, and none was written: {text}"]
    )
    assert not (pytester.path / "base.json").exists()


def test_nothing_overwrites_what_was_measured_before(
    pytester: pytest.Pytester, project: Path
) -> None:
    out = project / "out.json"
    out.write_text("as it was")
    result = run(pytester, "--gpu-benchmark-json=out.json", "-k", "none")
    result.assert_outcomes(passed=1, deselected=2)
    result.stdout.fnmatch_lines(["no benchmark has run: out.json is left as it was"])
    assert out.read_text() == "as it was"
    out.unlink()
    result = run(pytester, "--gpu-benchmark-json=out.json", "-k", "none")
    result.stdout.fnmatch_lines(["no benchmark has run: out.json is not made"])


@ways
def test_the_history_grows(pytester: pytest.Pytester, project: Path, way: tuple[str, ...]) -> None:
    for count in 3, 6:
        run(pytester, "--gpu-benchmark-history=past.jsonl", *way).assert_outcomes(passed=3)
        entries, bad = history.read(project / "past.jsonl")
        assert bad == []
        assert len(entries) == count


Make = Callable[[Path], Any]


@pytest.mark.parametrize(
    ("options", "make", "text"),
    [
        (["--gpu-benchmark-compare=b"], lambda path: path.write_text("{}"), "holds no benchmarks"),
        (["--gpu-benchmark-compare=b"], Path.mkdir, "--gpu-benchmark-compare=b is a folder"),
        (["--gpu-benchmark-json=none/b"], None, r"none/b is in no folder: .*none is missing"),
        (["--gpu-benchmark-history=none/b"], None, r"--gpu-benchmark-history=none/b is in no"),
        (
            ["--gpu-benchmark-compare=b", "--gpu-benchmark-json=./b"],
            None,
            "name the same file, which would let what is slower pass from the next time on;",
        ),
        (["--gpu-benchmark-compare="], None, "--gpu-benchmark-compare= names no file; is a variab"),
        (["--gpu-benchmark-json=b"], os.mkfifo, "--gpu-benchmark-json=b is there and is no file"),
        (
            ["--gpu-benchmark-history=b"],
            lambda path: path.write_text('{\n "format": "pytest-remotegpu/benchmarks"\n}\n'),
            "--gpu-benchmark-history=b is there and has no line of a history; name a file that",
        ),
        (
            ["--gpu-benchmark-history=b", "--gpu-benchmark-json=b"],
            None,
            "--gpu-benchmark-history=b names the file of --gpu-benchmark-json; name a file that",
        ),
    ],
)
def test_a_file_that_can_not_be_meant_is_refused_at_once(
    pytester: pytest.Pytester,
    project: Path,
    options: list[str],
    make: Make | None,
    text: str,
) -> None:
    if make is not None:
        make(project / "b")
    result = run(pytester, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert re.search(text, said(result))


@ways
def test_a_baseline_that_is_none_is_refused_everywhere(
    pytester: pytest.Pytester, project: Path, way: tuple[str, ...]
) -> None:
    (project / "base.json").write_text("{}")
    result = run(pytester, BASE, *way)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "holds no benchmarks" in said(result)


def test_a_file_that_can_not_be_written_fails_the_session(
    pytester: pytest.Pytester, project: Path
) -> None:
    pytester.makeconftest("""
        import pathlib
        import shutil

        def pytest_collection_finish():
            shutil.rmtree("gone")
    """)
    (project / "gone").mkdir()
    result = run(pytester, "--gpu-benchmark-json=gone/out.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["ERROR: gone/out.json was not written: No such file or directory"])


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        ("round=3", "the marker gpu_benchmark has no argument 'round'; valid are rounds (a whole"),
        ("3", "the marker gpu_benchmark takes no positional argument, and got 3; valid are"),
        ("rounds=2", "rounds is 2; give a whole number of 5 or more"),
        ("rounds='5'", "the marker gpu_benchmark: rounds is '5'; it is a whole number"),
        ("modes='wall'", "modes is 'wall'; it is 'eager', 'graph', or both"),
        ("modes=()", "modes is (); it is 'eager', 'graph', or both"),
        ("flush=1", "flush is 1; it is True or False"),
        ("group=None", "group is None; it is a text"),
    ],
)
def test_a_mark_that_can_not_be_meant_is_refused(
    pytester: pytest.Pytester, mark: str, text: str
) -> None:
    pytester.makepyfile(f"""
        import pytest

        @pytest.mark.gpu_benchmark({mark})
        def test_it(gpu_benchmark): pass

        def test_other(): pass
    """)
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert re.search(rf"::test_it: .*{re.escape(text)}", said(result))
    result.assert_outcomes()


def test_a_mark_is_refused_wherever_tests_run(pytester: pytest.Pytester) -> None:
    """Processes of pytest-xdist collect each for themselves, and can say so in the test only."""
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu_benchmark(round=3)
        def test_it(gpu_benchmark): pass

        def test_other(): pass
    """)
    result = run(pytester, CPU, ALL)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "::test_it: the marker gpu_benchmark has no argument 'round'" in said(result)
    result = run(pytester, "-n1")
    result.assert_outcomes(passed=1, errors=1)
    assert "the marker gpu_benchmark has no argument 'round'; valid are" in said(result)


def test_a_marked_test_has_its_own_device(pytester: pytest.Pytester) -> None:
    """Where GPUs are pretended it is the CPU, and the clock is the one on the wall."""
    pytest.importorskip("torch")
    pytester.makepyfile("""
        import pytest
        import torch

        @pytest.mark.gpu
        def test_it(gpu_benchmark, gpu_device):
            one = torch.ones(64, 64, device=gpu_device, dtype=torch.float64, requires_grad=True)
            for args in (), (one,):
                result = gpu_benchmark(lambda *_: one @ one, args=args, rounds=5)
                assert result.mode == "wall"
            assert result.environment["dtype"] == "float64"
            result = gpu_benchmark(torch.mm, args=(one, one), backward=True, rounds=5, flops=2**20)
            assert result.ms().low > 0
    """)
    result = run(pytester, CPU, "--gpu-benchmark-json=out.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["  contestant  wall *FLOP/s"])


def test_the_nearest_mark_and_the_call_count(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        pytestmark = pytest.mark.gpu_benchmark(rounds=6, warmup=0, group="module")

        @pytest.mark.gpu_benchmark(rounds=7)
        def test_it(gpu_benchmark):
            result = gpu_benchmark(lambda: sum(range(9)))
            assert (len(result.times()), result.group, result.warmup) == (7, "module", 0)
            result = gpu_benchmark(lambda: sum(range(9)), rounds=8, group="call")
            assert (len(result.times()), result.group, result.warmup) == (8, "call", 0)
    """)
    run(pytester).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("gpu_benchmark(None)", "contestant is None, which can't be called"),
        ("gpu_benchmark({})", "got no contestant: the mapping is empty"),
        ("gpu_benchmark(f, rounds=1)", "rounds is 1; give a whole number of 5 or more"),
        ("gpu_benchmark(f, round=9)", "gpu_benchmark has no argument 'round'; valid are"),
        ("gpu_benchmark(f, bytes=0)", "bytes of contestant is 0; give a positive number"),
        ("gpu_benchmark(f, flops=float('nan'))", "flops of contestant is nan;"),
        ("gpu_benchmark(f, flops={'b': 1})", "flops names 'b', which is no contestant"),
        ("gpu_benchmark(f, bytes=True)", "bytes of contestant is True;"),
        ("gpu_benchmark({'f': f, 'bad': lambda: 1 / 0})", "ZeroDivisionError: division by zero"),
        ("gpu_benchmark({'f': f, 'bad': lambda: 1 / 0})", "raised by the contestant 'bad' in its"),
        ("gpu_benchmark(f).faster_than('g')", "there is no contestant 'g'; there is contestant"),
    ],
)
def test_a_call_that_can_not_be_meant_fails_its_test(
    pytester: pytest.Pytester, call: str, text: str
) -> None:
    pytester.makepyfile(f"""
        def f():
            return sum(range(9))

        def test_it(gpu_benchmark):
            {call}
    """)
    result = run(pytester)
    result.assert_outcomes(failed=1)
    assert text in said(result)


def test_parts_of_a_test_tell_nothing_twice(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_it(gpu_benchmark, subtests):
            gpu_benchmark(lambda: sum(range(9)), rounds=5)
            with subtests.test("one"):
                pass
    """)
    if not hasattr(pytest, "Subtests"):
        pytest.skip("this pytest has no subtests")
    result = run(pytester, "--gpu-benchmark-json=out.json")
    assert result.ret == pytest.ExitCode.OK
    assert len(json.loads((pytester.path / "out.json").read_text())["benchmarks"]) == 1


def test_without_benchmarks_nothing_is_said(pytester: pytest.Pytester, project: Path) -> None:
    del project
    for way in WAYS.values():
        assert "gpu benchmarks" not in said(run(pytester, "-k", "none", *way))


def test_what_is_no_benchmark_is_an_error_of_the_session(pytester: pytest.Pytester) -> None:
    """A report may come from anywhere."""
    pytester.makeconftest("""
        import pytest

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_makereport(call):
            report = yield
            if call.when == "call":
                report.gpu_benchmark = [{"format": "\\x1b[2J"}]
            return report
    """)
    pytester.makepyfile("def test_it(): pass")
    for way in (), (CPU, ALL):
        result = run(pytester, "--remote-json=run.json", *way)
        result.assert_outcomes(passed=1)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        (test,) = json.loads((pytester.path / "run.json").read_text())["tests"]
        assert test["benchmarks"] == []
        result.stdout.fnmatch_lines(["ERROR: test_*: its benchmark can't be read: *"])
        assert "\x1b[2J" not in said(result)


def test_the_plugin_is_loaded_with_ours_and_never_alone(
    pytester: pytest.Pytester, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del project
    result = run(pytester, "-p", "no:remotegpu", "-k", "none", "-o", "addopts=", "-W", "default")
    result.assert_outcomes(passed=1, deselected=2, warnings=2)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for way in (), (CPU, ALL):
        result = run(pytester, "-p", "pytest_remotegpu.plugin", *way)
        result.assert_outcomes(passed=3)
        result.stdout.fnmatch_lines(["*= gpu benchmarks =*"])
