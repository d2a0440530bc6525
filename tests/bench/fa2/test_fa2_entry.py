"""``python -m pytest_remotegpu.bench.fa2`` as a process, on a host that shows no card."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from pytest_remotegpu.bench.fa2 import document
from pytest_remotegpu.bench.fa2.rows import Parity

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)

SMALL = (
    *("--set", "lengths=32,64", "--set", "windows=8", "--set", "blocks=[[8, 4]]"),
    *("--set", "compressed-lengths=32", "--set", "rounds=5", "--set", "warmup=1"),
)
ENVIRON = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def measure(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_remotegpu.bench.fa2", *arguments]
    return subprocess.run(
        command, cwd=folder, env=ENVIRON, capture_output=True, text=True, timeout=110, check=False
    )


def test_a_cpu_measures_and_recommends_nothing(tmp_path: Path) -> None:
    done = measure(tmp_path, *SMALL, "--set", "directions=forward,backward", "--away", "--out=out")
    assert done.returncode == 5, done.stderr
    assert done.stdout == ""
    assert "S=64 w=8 sliding backward float16: timed masked, stand-in" in done.stderr
    assert "fa2 needs a CUDA card, and this is a CPU" in done.stderr
    found = document.read(tmp_path / "out" / document.NAME).measured
    assert found.complete
    assert not found.device.cuda_available
    assert "no card was used: all times are those of a CPU" in found.notes[0]
    assert len(found.rows) == 6 * 7 * 2
    for row in found.rows:
        runs = row.column in {"masked", "stand-in"}
        assert bool(row.times) is runs
        assert bool(row.why) is not runs
        assert row.parity is (Parity.PASSED if runs else Parity.NOT_CHECKED)
    assert "masked S=64 w=8 sliding forward float16: passed" in found.parity_output
    assert found.parity()[0] is Parity.NOT_CHECKED


OWN = """
    import torch
    from pytest_remotegpu.bench.fa2 import ways

    def right(problem, device):
        return ways.chunked(problem, device)

    def wrong(problem, device):
        way = ways.chunked(problem, device)
        return lambda query, key, value: way(query, key, value.roll(1, 1))

    right.on_cpu = wrong.on_cpu = True
"""


def test_columns_of_a_user_are_measured_beside_ours(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(textwrap.dedent(OWN), encoding="utf-8")
    further = "further={ mine = 'own:right', bad = 'own:wrong', far = 'own:ways.varlen' }"
    done = measure(
        tmp_path, *SMALL, "--set", further, "--set", "columns=masked", "--away", "--out=out"
    )
    assert done.returncode == 5, done.stderr
    found = document.read(tmp_path / "out" / document.NAME).measured
    said: dict[str, set[tuple[Parity, bool]]] = {}
    for row in found.rows:
        said.setdefault(row.column, set()).add((row.parity, bool(row.times)))
    assert said == {
        "masked": {(Parity.PASSED, True)},
        "mine": {(Parity.PASSED, True)},
        "bad": {(Parity.FAILED, True)},
        "far": {(Parity.NOT_CHECKED, False)},
        "stand-in": {(Parity.PASSED, True)},
    }
    assert "bad S=32 w=8 sliding forward float16: failed: output: " in found.parity_output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sweep=none.toml",), "the sweep none.toml can't be read"),
        (("--set", "windows=0"), "windows of the command line has 0"),
        (("--set", "further={ mine = 'none.at:all' }"), "'none.at:all', which can't be imported"),
        (("--set", "further={ mine = 'os:sep' }"), "which is no function: '/'"),
        (("--out=/dev/null/x",), "--out=/dev/null/x can't be written"),
    ],
)
def test_what_can_not_be_meant_measures_nothing(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = measure(tmp_path, "--away", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.json"))


def test_what_was_measured_until_an_interrupt_is_written(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest_remotegpu.bench.fa2", *SMALL, "--away", "--out=out"]
    process = subprocess.Popen(
        [*command, "--repetitions=900"],
        cwd=tmp_path,
        env=ENVIRON,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process:
        try:
            for line in process.stderr:
                if "timed masked" in line:
                    break
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
    found = document.read(tmp_path / "out" / document.NAME).measured
    assert not found.complete
    assert found.rows
    assert time.strptime(found.began, "%Y-%m-%dT%H:%M:%SZ") <= time.strptime(
        found.ended, "%Y-%m-%dT%H:%M:%SZ"
    )
