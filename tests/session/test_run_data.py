"""``--remote-json``: the run as data, whole and right, however the session ended."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from fakes import Far, report
from pytest_remotegpu.protocol import events
from stage import FAR, HERE, Stage

from .running import CPU, LONG, Started, run, said, until

KEYS = {
    *("format", "version", "session", "backend", "limits", "outcomes", "cost", "shapes"),
    *("workers", "tests", "artifacts_dir", "left_running", "sent", "causes", "notes"),
}


def read(path: Path) -> dict[str, Any]:
    """Read a document, and see that it is one."""
    data: dict[str, Any] = json.loads(path.read_text(), parse_constant=int)
    assert (data["format"], data["version"]) == ("pytest-remotegpu/run", 1)
    assert data.keys() >= KEYS
    return data


def by_id(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Give the tests of a document by their id, each of which is there once."""
    found = {test["id"]: test for test in data["tests"]}
    assert len(found) == len(data["tests"])
    return found


def adds_up(data: dict[str, Any]) -> None:
    """See that parts are as much as the whole."""
    money, workers = data["cost"], data["workers"]
    assert money["tests"] + money["start"] + money["idle"] == pytest.approx(money["total"])
    assert sum(worker["cost_usd"] for worker in workers) == pytest.approx(money["total"])
    assert sum(shape["cost_usd"] or 0 for shape in data["shapes"]) == pytest.approx(money["total"])
    tests = [test["cost_usd"] or 0 for test in data["tests"]]
    assert sum(tests) == pytest.approx(money["tests"])
    for worker in workers:
        parts = [worker[f"{part}_seconds"] for part in ("start", "busy", "idle")]
        assert min(parts) >= 0
        assert worker["gpu_seconds"] == pytest.approx(sum(parts) * worker["gpus"])
        hourly = worker["price"]["usd_per_hour"]
        assert worker["cost_usd"] == pytest.approx(hourly * sum(parts) / 3600)


PROJECT = """
    import pytest

    def test_here(): pass

    @pytest.mark.gpu
    def test_good(artifacts_dir):
        (artifacts_dir / "x.txt").write_text("x")

    @pytest.mark.gpu(2)
    def test_bad(): assert 1 == 2, "no good"

    @pytest.mark.gpu
    def test_skipped(): pytest.skip("not today")

    @pytest.mark.gpu
    @pytest.mark.xfail
    def test_known(): assert 0

    @pytest.fixture
    def broken(): raise OSError("broken")

    @pytest.mark.gpu
    def test_error(broken): pass

    @pytest.mark.gpu
    def test_crash():
        import os
        os._exit(7)

    @pytest.mark.gpu
    def test_forges(record_property):
        record_property("remotegpu_gpu", float("nan"))
        record_property("remotegpu_peak_allocated", float("inf"))
"""


@pytest.mark.parametrize("args", [(), ("-n2",)], ids=["alone", "xdist"])
def test_a_run_with_all_outcomes(args: tuple[str, ...], pytester: pytest.Pytester) -> None:
    if args:
        pytest.importorskip("xdist")
    pytester.makeini("[pytest]\nremotegpu_prices = local:cpu = 36\n")
    pytester.makepyfile(test_it=PROJECT)
    names = ("--remote-json=out/run.json", "--remote-artifacts=kept", "--remote-run-timeout=600")
    result = run(pytester, CPU, *names, *args)
    assert result.ret == 1
    data = read(pytester.path / "out" / "run.json")
    tests = by_id(data)
    assert {id.partition("::")[2]: test["outcome"] for id, test in tests.items()} == {
        "test_here": "passed",
        "test_good": "passed",
        "test_bad": "failed",
        "test_skipped": "skipped",
        "test_known": "xfailed",
        "test_error": "error",
        "test_crash": "failed",
        "test_forges": "passed",
    }
    assert data["outcomes"] == {"passed": 3, "failed": 2, "skipped": 1, "xfailed": 1, "error": 1}
    session = data["session"]
    assert (session["complete"], session["exit_status"]) == (True, 1)
    assert session["root"] == str(pytester.path)
    assert data["backend"]["name"] == CPU.partition("=")[2]
    assert data["backend"]["gpu_used"] is False
    assert data["limits"] == {"test_seconds": 600, "run_seconds": 600, "max_cost_usd": None}
    ends = 1 + 8 / 600  # of workers, beyond the run limit
    # tests on one card and on two, and who collects their file, in each process
    assert data["cost"]["at_most"] == pytest.approx((4 if not args else 8) * 6 * ends)
    adds_up(data)
    here = tests["test_it.py::test_here"]
    assert (here["where"], here["worker"], here["gpu_seconds"]) == ("here", None, None)
    good = tests["test_it.py::test_good"]
    assert good["where"] == "far"
    assert good["worker"] in {worker["name"] for worker in data["workers"]}
    assert good["gpu"] == "1 GPU (pretend)"
    assert list(good["phases"]) == ["setup", "call", "teardown"]
    assert good["gpu_seconds"] == pytest.approx(good["seconds"], abs=0.01)
    assert good["cost_usd"] == pytest.approx(good["gpu_seconds"] / 100)
    [artifact] = good["artifacts"]
    assert Path(data["artifacts_dir"], artifact).read_text() == "x"
    bad = tests["test_it.py::test_bad"]
    assert "no good" in bad["message"]
    assert bad["gpus"] == 2
    assert tests["test_it.py::test_crash"]["verdict"] == "crash"
    assert tests["test_it.py::test_crash"]["gpu_seconds"] > 0
    assert tests["test_it.py::test_forges"]["gpu"] == "1 GPU (pretend)"
    assert tests["test_it.py::test_forges"]["peak_allocated_bytes"] is None


def test_numbers_that_are_none_do_not_spoil_the_document(stage: Stage) -> None:
    def lies(far: Far) -> None:
        far.greet()
        for place, wrong in enumerate((float("nan"), float("inf"), 1e300)):
            phases = [report(place, when, duration=wrong) for when in ("setup", "call", "teardown")]
            far.say(events.Started(place), *phases, events.Finished(place))
        far.end()

    played = stage.run(lies, args=("--remote-json=run.json",))
    assert played.ret == 0, played.text
    tests = by_id(read(stage.path / "run.json"))
    assert [tests[id]["outcome"] for id in (*FAR, *HERE)] == ["passed"] * 5
    assert [tests[id]["seconds"] for id in FAR] == [0, 0, pytest.approx(3e300)]
    assert tests[FAR[0]]["phases"]["call"] == {"outcome": "passed", "seconds": 0}
    assert read(stage.path / "run.json")["cost"] is None


def test_what_a_limit_kept_from_running_is_there(stage: Stage) -> None:
    def hangs(far: Far) -> None:
        far.greet()
        far.run(0)
        far.stopped.wait(20)

    stage.run(hangs, args=("--remote-json=run.json", "--remote-run-timeout=1"))
    data = read(stage.path / "run.json")
    tests = by_id(data)
    assert [tests[id]["outcome"] for id in FAR] == ["passed", "error", "error"]
    assert tests[FAR[1]]["verdict"] == "budget"
    assert "not run: the run limit of 1 s" in tests[FAR[1]]["message"]
    assert tests[FAR[1]]["where"] == "far"
    assert (data["session"]["complete"], data["session"]["exit_status"]) == (True, 1)
    limit = "the run limit of 1 s (--remote-run-timeout) is reached"
    assert data["causes"] == [f"scripted-1 has not ended, although {limit}", limit]


@pytest.mark.skipif(not hasattr(pytest, "SubtestReport"), reason="pytest 9 brought sub-tests")
def test_a_part_of_a_test_is_not_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.gpu
        def test_skips_a_part(subtests):
            for number in range(3):
                with subtests.test(number=number):
                    if number == 1:
                        pytest.skip("odd")

        @pytest.mark.gpu
        def test_fails_a_part(subtests):
            with subtests.test(number=0):
                assert 0, "the part"
    """
    )
    assert run(pytester, CPU, "--remote-json=run.json").ret == 1
    tests = by_id(read(pytester.path / "run.json"))
    assert tests["test_it.py::test_skips_a_part"]["outcome"] == "passed"
    assert tests["test_it.py::test_fails_a_part"]["outcome"] == "failed"
    assert "the part" in tests["test_it.py::test_fails_a_part"]["message"]


def test_tests_that_maxfail_left_out_have_not_run(stage: Stage) -> None:
    (stage.path / "test_a.py").write_text("def test_first(): assert 0\n")
    played = stage.run(args=("--remote-json=run.json", "-x"))
    assert played.ret == 1
    data = read(stage.path / "run.json")
    assert data["outcomes"] == {"failed": 1, "not run": 5}
    assert by_id(data)[FAR[0]]["where"] is None


def test_after_ctrl_c(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=LONG)
    with Started(pytester, CPU, "--remote-json=run.json") as session:
        assert until((pytester.path / "has-begun").exists)
        os.kill(session.process.pid, signal.SIGINT)
        assert session.end() == pytest.ExitCode.INTERRUPTED
    data = read(pytester.path / "run.json")
    assert (data["session"]["complete"], data["session"]["exit_status"]) == (True, 2)
    outcomes = [test["outcome"] for test in data["tests"]]
    assert outcomes[0] == "passed"
    assert outcomes[2] == "not run"
    assert len(data["workers"]) == 1


def test_after_a_kill_there_is_the_last_version(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=LONG)
    (pytester.path / "run.json").write_text("of an earlier session")
    with Started(pytester, CPU, "--remote-json=run.json") as session:
        assert until((pytester.path / "has-begun").exists)
        os.kill(session.process.pid, signal.SIGKILL)
        session.end()
    data = read(pytester.path / "run.json")
    assert (data["session"]["complete"], data["session"]["exit_status"]) == (False, None)
    assert [test["id"] for test in data["tests"]] == [
        f"test_it.py::test_{name}" for name in ("before", "long", "after")
    ]
    assert not list(pytester.path.glob(".run.json*"))


def test_after_an_internal_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="def test_one(): pass")
    pytester.makeconftest("def pytest_runtest_logfinish(): raise KeyError('mine')")
    result = pytester.runpytest_subprocess(CPU, "--remote-json=run.json")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    data = read(pytester.path / "run.json")
    assert (data["session"]["complete"], data["session"]["exit_status"]) == (True, 3)
    assert data["outcomes"] == {"passed": 1}


def test_without_a_far_side_it_is_the_run_here(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="def test_one(): pass")
    assert run(pytester, "--remote-json=run.json").ret == 0
    data = read(pytester.path / "run.json")
    assert (data["backend"], data["cost"], data["workers"]) == (None, None, [])
    assert data["tests"][0]["where"] == "here"


@pytest.mark.parametrize("args", ["--collect-only", "--remote-plan"])
def test_what_runs_nothing_leaves_the_file_alone(pytester: pytest.Pytester, args: str) -> None:
    pytester.makepyfile(test_it="def test_one(): pass")
    (pytester.path / "run.json").write_text("of an earlier session")
    assert run(pytester, CPU, "--remote-json=run.json", args).ret == 0
    assert (pytester.path / "run.json").read_text() == "of an earlier session"
    assert run(pytester, CPU, "--remote-json=new/run.json", args).ret == 0
    assert not (pytester.path / "new").exists()


@pytest.mark.parametrize(
    "place", ["folder", "folder/", "new/", "file/run.json", "pipe", "bad\0name"]
)
def test_a_place_that_can_be_no_file_is_refused(pytester: pytest.Pytester, place: str) -> None:
    pytester.makepyfile(test_it="def test_one(): raise AssertionError('it ran')")
    (pytester.path / "folder").mkdir()
    (pytester.path / "file").touch()
    os.mkfifo(pytester.path / "pipe")
    result = pytester.runpytest_inprocess(CPU, f"--remote-json={place}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert not (pytester.path / "new").exists()
    text = result.stdout.str() + result.stderr.str()
    assert f"ERROR: --remote-json={place!r} can't be written: " in text
    assert stat.S_ISFIFO((pytester.path / "pipe").stat().st_mode)


def test_a_link_is_followed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="def test_one(): pass")
    (pytester.path / "link.json").symlink_to("real.json")
    assert run(pytester, "--remote-json=link.json").ret == 0
    assert (pytester.path / "link.json").is_symlink()
    assert read(pytester.path / "real.json")["outcomes"] == {"passed": 1}


def test_a_session_whose_file_is_lost_is_not_green(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="import os, shutil\ndef test_one(): shutil.rmtree('out'); open('out', 'w').close()"
    )
    result = run(pytester, "--remote-json=out/run.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "ERROR: --remote-json: " in said(result)
    assert "was not written: " in said(result)
