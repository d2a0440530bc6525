"""``remotegpu bench`` as a command: sweeps here and on far sides, and what is said before them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.sweeps import CARD, grows, made
from pytest_remotegpu.bench.fa2 import document
from pytest_remotegpu.bench.fa2.judging import Question
from pytest_remotegpu.bench.fa2.measured import Device, Measured
from pytest_remotegpu.bench.fa2.rows import Problem, Regime
from session.running import CPU, until

from .conftest import Host

pytestmark = pytest.mark.timeout(240)  # a machine may be busy with other tests
torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="what measures needs torch"
)
TINY = [
    *("--set=lengths=32,64", "--set=windows=16", "--set=compressed-lengths=64"),
    *("--set=rounds=7", "--set=warmup=1", "--set=columns=masked,fa2"),
]
"""A sweep that takes no time."""
PRETENDS = "command:env PYTEST_REMOTEGPU_PRETEND_GPUS=1"
HERE = ["-o", f"remotegpu_python={sys.executable}"]
YAML = "# mine\nruntime:\n  fa2_min_len_win: 8192  # off\n  other: 1\n"

Done = subprocess.CompletedProcess[str]


def line(*words: str) -> list[str]:
    return [sys.executable, "-m", "pytest_remotegpu", "bench", *words]


def bench(*words: str) -> Done:
    """Run the command as a user's shell would."""
    done = subprocess.run(line(*words), capture_output=True, text=True, timeout=200, check=False)
    assert "INTERNALERROR" not in done.stderr
    assert "Traceback (most recent call last)" not in done.stderr
    return done


def read(path: str) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def project(pytester: pytest.Pytester) -> Path:
    Path("config.yaml").write_text(YAML, encoding="utf-8")
    return pytester.path


# sweeps


@torch
@pytest.mark.parametrize("far", [[CPU], []], ids=["far", "here"])
def test_without_a_card_the_document_says_so_and_nothing_is_recommended(far: list[str]) -> None:
    words = [*TINY, "--repetitions=2", "--update-config=config.yaml", "--history=past.jsonl"]
    done = bench("fa2", *far, *words)
    assert done.returncode == 5, done.stderr
    assert "config.yaml stays as it is: no card was used\n" in done.stdout
    assert "nothing was added to past.jsonl: no card was used\n" in done.stdout
    assert done.stdout.count("report: remotegpu-fa2/report.md\n") == 1
    assert Path("config.yaml").read_text(encoding="utf-8") == YAML
    assert not Path("past.jsonl").exists()
    found = read("remotegpu-fa2/fa2.json")
    assert found["device_info"]["cuda_available"] is False
    assert set(found["recommendation"].values()) == {None}
    assert found["trouble"] == "no card was used"
    assert {row["repetition"] for row in found["rows"]} == {1, 2}
    assert {row["problem"]["length"] for row in found["rows"]} == {32, 64}
    assert any(row["times"] for row in found["rows"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found["timestamp"])
    report = Path("remotegpu-fa2/report.md").read_text(encoding="utf-8")
    assert "| card | no card was used |\n" in report
    assert Path("remotegpu-fa2/.gitignore").read_text(encoding="utf-8") == "*\n"


@torch
def test_a_sweep_of_a_file_outside_of_the_project_travels(tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("elsewhere") / "sweep.toml"
    path.write_text(
        'lengths = [32]\nwindows = [8]\nbranches = ["sliding"]\nrounds = 7\nwarmup = 0\n'
        'columns = ["masked"]\nmargin = 1.35\n'
    )
    done = bench("fa2", CPU, f"--sweep={path}", "--out=results", "--set=windows=4")
    assert done.returncode == 5, done.stderr
    found = read("results/fa2.json")
    assert {(r["problem"]["length"], r["problem"]["window"]) for r in found["rows"]} == {(32, 4)}
    assert found["question"]["margin"] == 1.35
    assert not Path("results/.gitignore").exists()


@torch
def test_one_far_side_that_fails_takes_no_other_along() -> None:
    bad = "command:false"
    done = bench("fa2", f"--remote={bad}", CPU, "--out=all", *TINY)
    assert done.returncode == 125, done.stderr
    assert "[local:cpu]     " in done.stdout
    assert re.search(rf"^\[{bad}\] +remotegpu: ", done.stderr, re.MULTILINE), done.stderr
    assert re.search(r"^where +exit status +cost +document$", done.stdout, re.MULTILINE)
    assert re.search(rf"^{bad} +125 +- +none has come back$", done.stdout, re.MULTILINE)
    assert re.search(r"^local:cpu +5 +- +all/local-cpu/fa2.json$", done.stdout, re.MULTILINE)
    assert read("all/local-cpu/fa2.json")["complete"] is True
    for told in (done.stdout + done.stderr).splitlines():
        assert told.startswith((f"[{bad}]", "[local:cpu]", "where", "local:cpu ", f"{bad} ")), told


@torch
def test_two_far_sides_are_shown_beside_each_other() -> None:
    done = bench("fa2", CPU, f"--remote={PRETENDS}", *HERE, "--out=all", *TINY)
    assert done.returncode == 5, done.stderr
    assert "[1]  local:cpu " in done.stdout
    assert f"[2]  {PRETENDS} " in done.stdout
    assert len(list(Path("all").glob("*/fa2.json"))) == 2


@torch
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_ends_the_command_ends_all_sweeps(number: signal.Signals) -> None:
    """Each hears of it once, and no process of theirs is left."""
    seed = os.getpid() * 100 + number
    process = measuring(seed)
    process.send_signal(number)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    assert len(re.findall(r"^\S.* +130 ", out, re.MULTILINE)) == 2, out
    assert until(lambda: not running(seed), 20)


def test_a_command_that_is_killed_takes_all_sweeps_along() -> None:
    """Nobody else would end them, and machines that are rented would go on being paid for."""
    seed = os.getpid() * 100
    process = measuring(seed)
    process.kill()
    process.communicate()
    assert until(lambda: not running(seed), 40)


def measuring(seed: int) -> subprocess.Popen[str]:
    """Begin sweeps on two far sides, and wait until each measures what takes minutes."""
    words = ["--set=rounds=100000", "--set=lengths=512", "--set=columns=masked", "--out=all"]
    process = subprocess.Popen(
        line("fa2", CPU, f"--remote={PRETENDS}", *HERE, *words, f"--set=seed={seed}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    begun: set[str] = set()
    while len(begun) < 2:
        told = process.stderr.readline()
        assert told, begun
        if " problems on " in told:
            begun.add(told.partition("]")[0])
    assert len(running(seed)) == 2
    return process


def running(seed: int) -> list[str]:
    """List the processes that measure a sweep of this seed."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes()
            if b"pytest_remotegpu.bench.fa2\0" in words and f'"seed": {seed}'.encode() in words:
                found.append(folder.name)
    return found


@pytest.mark.usefixtures("home")
def test_a_host_with_a_card_that_is_too_old_says_so(host: Host) -> None:
    """Before anything is measured: the session finds no card that has what it needs."""
    host.has("Tesla T4", capability=7.5)
    done = bench("fa2", "--remote=local", *TINY)
    assert done.returncode == 125, done.stderr
    assert "capability 8.0" in done.stderr
    assert "7.5" in done.stderr
    assert "no document has come back\n" in done.stderr


# what can't be meant


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--margin=0"], "invalid margin '0'; write 1.2 for 20 % faster"),
        (["--margin=much"], "invalid margin 'much'"),
        (["--margin=nan"], "invalid margin 'nan'"),
        (["--regime=cold"], "invalid choice: 'cold'"),
        (["--reference=fa2"], "invalid choice: 'fa2'"),
        (["--window=64,"], "invalid windows '64,'; write tokens, such as 64,128"),
        (["--repetitions=0"], "invalid number '0'"),
        (["--sweep=nothing.toml"], "the sweep nothing.toml can't be read: No such file"),
        (["--sweep=config.yaml"], "config.yaml is no TOML"),
        (["--set=length=3"], "unknown key 'length'; did you mean 'lengths'?"),
        (["--dry-run"], "--dry-run is about a configuration"),
        (["--update-config=none.yaml"], "none.yaml can't be read: No such file"),
        (["--update-config=a.txt"], "a.txt has the suffix '.txt'"),
        (["--update-config=list.yaml"], "list.yaml holds no table of keys but a list"),
        (["--out=config.yaml"], "--out=config.yaml can't be written: File exists"),
        (["--out=config.yaml/a"], "--out=config.yaml/a can't be written: Not a directory"),
        (["--history=no/such"], "--history=no/such can't be written: there is no such folder"),
        (["--remote=nowhere"], "there is no backend 'nowhere'"),
        (["--gpu-required"], "--gpu-required refuses"),
        (["--remote-run-timeout=soon"], "soon"),
        ([CPU], "--remote=local:cpu is given twice; --repetitions=2 measures again"),
        (
            [f"--remote={PRETENDS}", "--update-config=config.yaml"],
            (
                "--update-config is for one far side, and 2 are given; measure on all, then: "
                "remotegpu bench judge FILE --update-config=..."
            ),
        ),
        ([f"--remote={PRETENDS}", "--remote-json=a"], "--remote-json is for one far side"),
    ],
)
def test_what_can_not_be_meant_is_said_before_anything_is_started(
    words: list[str], told: str
) -> None:
    Path("list.yaml").write_text("- 1\n", encoding="utf-8")
    done = bench("fa2", CPU, *words)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert told in done.stderr
    assert "remote summary" not in done.stderr


def test_what_is_about_a_far_side_needs_one() -> None:
    done = bench("fa2", "--remote-max-cost=1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--remote-max-cost is about a far side; name one with --remote=SPEC" in done.stderr


def test_the_commands_are_named() -> None:
    done = bench("--help")
    assert done.returncode == 0
    for name in ("fa2", "judge", "compare", "regressions", "history"):
        assert re.search(rf"^    {name}\b", done.stdout, re.MULTILINE)
    assert bench().returncode == 2
    assert "--adaptive" in bench("fa2", "--help").stdout


# documents that are there


def written(path: str, measured: Measured, regime: Regime = Regime.DEVICE) -> str:
    Path(path).parent.mkdir(exist_ok=True)
    document.write(Path(path), measured, Question(regime))
    return path


def slow(problem: Problem, regime: Regime, reference: str, repetition: int) -> float:
    return grows(problem, regime, reference, repetition) / 64


def test_a_document_is_judged_anew() -> None:
    path = written("a.json", made())
    done = bench("judge", path)
    assert done.returncode == 0, done.stderr
    assert "asked for: device time, margin 1.2 (20 % faster) against masked\n" in done.stdout
    assert "fa2_min_len_win 2048: from S = 2048 in one run\n" in done.stdout
    words = ["--regime=eager", "--margin=1.5", "--window=32", "--out=anew"]
    done = bench("judge", path, *words)
    assert done.returncode == 0, done.stderr
    assert "fa2_min_len_win 1024: from S = 1024 in one run\n" in done.stdout
    assert read("anew/fa2.json")["question"]["margin"] == 1.5
    assert read(path)["question"]["margin"] == 1.2
    assert Path("anew/report.md").exists()
    done = bench("judge", "anew/fa2.json", "--out=anew", "--margin=2.5")
    assert done.returncode == 0, done.stderr
    assert read("anew/fa2.json")["question"]["margin"] == 2.5


def test_a_configuration_is_changed_and_nothing_else_in_it() -> None:
    path = written("a.json", made())
    dry = bench("judge", path, "--update-config=config.yaml", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "-  fa2_min_len_win: 8192  # off\n" in dry.stdout
    assert "config.yaml was not changed: --dry-run\n" in dry.stdout
    assert Path("config.yaml").read_text(encoding="utf-8") == YAML
    done = bench("judge", path, "--update-config=config.yaml")
    assert "+  fa2_min_len_win: 2048  # off\n" in done.stdout
    text = Path("config.yaml").read_text(encoding="utf-8")
    assert text == (
        "# mine\nruntime:\n  fa2_min_len_cmp: 63\n  fa2_min_len_win: 2048  # off\n  other: 1\n"
    )
    assert Path("config.yaml.bak").read_text(encoding="utf-8") == YAML
    again = bench("judge", path, "--update-config=config.yaml")
    assert "config.yaml stays as it is: it has these values\n" in again.stdout
    never = bench("judge", written("b.json", made(slow)), "--update-config=config.yaml")
    assert never.returncode == 0
    assert "fa2_min_len_win: 999999  # off\n" in Path("config.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--window=32,4096"], "runtime.fa2_min_len_win in config.yaml stays as it is: there is"),
        (["--direction=backward"], "runtime.fa2_min_len_cmp in config.yaml stays as it is: there"),
    ],
)
def test_without_data_a_key_stays_as_it_is(words: list[str], told: str) -> None:
    path = written("a.json", made())
    done = bench("judge", path, "--update-config=config.yaml", *words)
    assert told in done.stdout
    assert "fa2_min_len_win: 8192  # off" in Path("config.yaml").read_text(encoding="utf-8")
    assert done.returncode == (5 if "backward" in words[0] else 0)


def test_without_parity_a_configuration_stays_as_it_is() -> None:
    data = read(written("a.json", made()))
    data["rows"][2]["parity"] = "failed"
    Path("a.json").write_text(json.dumps(data), encoding="utf-8")
    done = bench("judge", "a.json", "--update-config=config.yaml")
    assert done.returncode == 1
    assert "config.yaml stays as it is: fa2 differs from float32 at S=256 w=32" in done.stdout
    assert Path("config.yaml").read_text(encoding="utf-8") == YAML


def test_each_line_that_was_not_understood_is_told() -> None:
    Path("log.txt").write_text(
        "warm\x1b[2J\nS=256 w=64 sliding masked 0.30 ms  fa2 0.20 ms  speedup x1.50\n"
        "S=12 w=3 sliding\n"
    )
    done = bench("judge", "log.txt")
    assert done.returncode == 5
    assert "log.txt: line 1 was not understood: warm?[2J\n" in done.stdout
    assert "log.txt: line 3 was not understood: S=12 w=3 sliding\n" in done.stdout
    assert "nothing is recommended: nothing is said of a comparison with float32\n" in done.stdout


def test_documents_are_compared() -> None:
    other = made(device=Device(True, "NVIDIA A100", "2.13.0", "13.0", True))
    paths = [written("a.json", made()), written("b.json", other)]
    done = bench("compare", *paths, "--regime=device")
    assert done.returncode == 0, done.stderr
    assert "[1] and [2] are of different environments: card: NVIDIA H200 and NVIDIA A100" in (
        done.stdout
    )
    alone = bench("compare", "a.json")
    assert alone.returncode == 2
    assert "there is nothing to compare: give two files or more" in alone.stderr


def test_the_first_run_makes_the_baseline() -> None:
    path = written("a.json", made())
    first = bench("regressions", "kept/base.json", path)
    assert first.returncode == 0, first.stderr
    assert "kept/base.json is new: it is the baseline from now on" in first.stdout
    same = bench("regressions", "kept/base.json", path)
    assert (same.returncode, same.stdout.splitlines()[0]) == (0, "120 equal")
    slower = made(lambda *where: grows(*where) * 1.5)
    done = bench("regressions", "kept/base.json", written("b.json", slower))
    assert done.returncode == 1
    assert "slower: masked, S=256 w=32, eager time, forward, bfloat16" in done.stdout
    assert bench("regressions", "kept/base.json", "b.json", "--noise=0.8").returncode == 0
    assert bench("regressions", "b.json", "kept/base.json").returncode == 0
    other = made(device=Device(True, "NVIDIA A100", "2.13.0", "13.0", True))
    away = bench("regressions", "kept/base.json", written("c.json", other))
    assert away.returncode == 5
    assert away.stdout.startswith("not compared, the environments differ: card: NVIDIA H200 and")


def test_what_makes_no_baseline() -> None:
    data = read(written("a.json", made()))
    data["rows"][2]["parity"] = "failed"
    Path("a.json").write_text(json.dumps(data), encoding="utf-8")
    done = bench("regressions", "base.json", "a.json")
    assert done.returncode == 1
    assert "a.json makes no baseline: fa2 differs from float32" in done.stdout
    assert not Path("base.json").exists()


def test_a_baseline_that_can_not_be_written_leaves_no_half_of_it() -> None:
    path = written("a.json", made())
    assert Path(path).stat().st_size > 2 * 8 * 1024  # of 8 blocks, in whatever unit, not half fits
    limited = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh"]
    limited += line("regressions", "base.json", path)
    done = subprocess.run(limited, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 2
    assert "base.json can't be written: File too large" in done.stderr
    assert not list(Path().glob("*base.json*"))
    assert bench("regressions", "base.json", path).returncode == 0
    assert Path("base.json").read_bytes() == Path(path).read_bytes()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"format": "pytest-remotegpu/fa2", "version": 7}, "version 7, and this package reads"),
        ({"a": 1}, "is no document of a benchmark"),
    ],
)
def test_a_document_that_can_not_be_read(data: Any, told: str) -> None:
    Path("a.json").write_text(json.dumps(data), encoding="utf-8")
    for words in (["judge"], ["compare", "a.json"], ["regressions", "a.json"]):
        done = bench(*words, "a.json")
        if words[0] != "regressions":
            assert (done.returncode, done.stdout) == (2, "")
            assert told in done.stderr
    assert CARD.cuda_available
