"""The suite as a command, by module and as ``remotegpu diagnose``: streams, ends, what is left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from session.running import CPU, until

pytestmark = [
    pytest.mark.timeout(240),  # a machine may be busy with other tests
    pytest.mark.skipif(sys.platform == "win32", reason="signals and local:cpu need POSIX"),
]

MODEL = """
import os, sys, time
from pathlib import Path
import torch
from torch import nn

torch.set_num_threads(1)
print("noise")
os.write(1, b"more noise\\n")

def make_model():
    print("a model is made")
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))

def frozen():
    return make_model().requires_grad_(False)

def loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])

def make_batch():
    return torch.randn(6, 8), torch.arange(6) % 4

class Waits(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.steps = make_model(), 0

    def forward(self, inputs):
        self.steps += 1
        if self.steps == 5:
            Path("waits").write_text(str(os.getpid()))
            time.sleep(90)
        return self.net(inputs)

def plain(model): return model

def shards(model):
    return torch.distributed.fsdp.fully_shard(model)

def leaks(model):
    policy = torch.distributed.fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    return torch.distributed.fsdp.fully_shard(model, mp_policy=policy)

def dies(model):
    if torch.distributed.get_rank() == 1:
        os._exit(7)
    return model

def raises(model):
    if torch.distributed.get_rank() == 1:
        raise LookupError("only here")
    return nn.parallel.DistributedDataParallel(model)

def waits(model):
    Path(f"rank{torch.distributed.get_rank()}").write_text(str(os.getpid()))
    time.sleep(90)
"""
MODULE = ("-m", "pytest_remotegpu.diagnostics")
COMMAND = ("-m", "pytest_remotegpu", "diagnose")


@pytest.fixture(autouse=True)
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytester.makepyfile(model=MODEL)
    temporary = pytester.mkdir("tmp")
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    tempfile.tempdir = None
    return pytester.path


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def run(*words: str) -> tuple[int, str, str]:
    process = start(*words)
    out, err = process.communicate(timeout=200)
    return process.returncode, out.decode(), err.decode()


def data(folder: str = "remotegpu-diagnosis") -> Any:
    return json.loads(Path(folder, "report.json").read_bytes())


def states() -> dict[str, str]:
    return {check["name"]: check["state"] for check in data()["checks"]}


def is_gone(file: str) -> bool:
    return not Path("/proc", Path(file).read_text()).exists()


def left() -> list[str]:
    """List the folder for temporary files, without the cache that torch makes there."""
    return [name for name in names("tmp") if not name.startswith("torchinductor")]


def names(folder: str = "remotegpu-diagnosis") -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def test_lines() -> None:
    status, out, err = run(*COMMAND, "model:frozen")
    assert status == 1
    lines = out.splitlines()
    assert lines[0].startswith("model:frozen: model Sequential, parameters 420, trainable 0")
    assert [line.split()[0] for line in lines[1:4]] == ["ok", "FAIL", "->"]
    assert "frozen-parameters: all 4 parameters can't learn" in lines[2]
    assert "requires_grad_(True)" in lines[3]
    assert "because: first_step failed: frozen-parameters" in lines[4]
    assert lines[-1] == "report: remotegpu-diagnosis/report.md"
    assert "noise" not in out
    assert "more noise" in err
    assert Path("remotegpu-diagnosis/report.md").is_file()
    assert left() == []


def test_json_is_alone_on_stdout() -> None:
    """Whatever the user's code prints; a report of before is replaced, other files are not."""
    Path("out").mkdir()
    Path("out/overfit_sample-loss.csv").write_text("old")
    Path("out/mine.csv").write_text("mine")
    words = ("model:make_model", "--json", "--only=batch", "--out=out")
    status, out, err = run(*MODULE, *words)
    assert (status, json.loads(out)) == (0, data("out"))
    assert "ok       batch" in err
    assert names("out") == ["mine.csv", "report.json", "report.md"]


def test_on_a_far_side() -> None:
    """The same, with the files brought back, in the place of those of an earlier report."""
    Path("remotegpu-diagnosis").mkdir()
    Path("remotegpu-diagnosis/overfit_batch-loss.csv").write_text("old")
    words = (CPU, "model:frozen", "--json", "--only=batch,overfit_sample", "--fixed=0.*")
    status, out, err = run(*COMMAND, *words)
    assert (status, json.loads(out)) == (1, data()), err
    assert (data()["next"]["code"], data()["status"]) == ("frozen-parameters", 1)
    assert "noise" in err
    assert err.splitlines()[-1] == "report: remotegpu-diagnosis/report.md"
    assert {"report.md", "report.json", "overfit_sample-loss.csv", ".gitignore"} <= {*names()}
    assert not any(name.startswith(("command", "overfit_batch")) for name in names())
    assert left() == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "which model? Write MODULE:FACTORY"),
        (("model",), "write MODULE:NAME, such as model:make_model"),
        (("model.py:frozen",), "write MODULE:NAME, such as model:frozen"),
        (("src/pkg/model.py:frozen",), "write MODULE:NAME, such as src.pkg.model:frozen"),
        (("nowhere.at.all:frozen",), "'nowhere.at.all', is neither in this folder"),
        (("model.deeper:frozen",), "'model.deeper', is neither in this folder"),
        (("model:frosen",), "module 'model' has no 'frosen'; is 'frozen' meant?"),
        (("model:loss",), "model:loss needs arguments (model, batch), and is called without"),
        (("lacks:make_model",), "no batch: lacks has none of make_batch, batch, BATCH"),
        (("model:frozen", "--loss=los"), "module 'model' has no 'los'; is 'loss' meant?"),
        (("model:frozen", "--only=overfit"), "--only=overfit names no check; these are: batch,"),
        (("model:frozen", "--only=loss_scale"), "loss_scale needs ranks: add --ranks=2"),
        (("model:frozen", "--only=batch", "--skip=batch"), "no check is left"),
        (("model:frozen", "--ranks=1"), "invalid number of ranks '1'; write 2 to 64"),
        (("model:frozen", "--device=a b"), "--device='a b' is no device"),
        (("model:frozen", "--out=model.py"), "the report can't be written"),
    ],
)
def test_what_can_not_be_meant(words: tuple[str, ...], told: str) -> None:
    """It is said at once, without torch, and nothing is left; with a far side nothing is begun."""
    Path("lacks.py").write_text("from model import make_model\n")
    Path("torch.py").write_text("raise RuntimeError('torch was imported')\n")
    status, out, err = run(*COMMAND, *words, "--remote=command:touch begun;false")
    assert (status, out) == (2, ""), err
    assert told in err
    assert not Path("begun").exists()
    assert not Path("remotegpu-diagnosis").exists()
    if told != "the report can't be written":
        again, _, there = run(*MODULE, *words)
        assert (again, told in there) == (2, True)
        assert not Path("remotegpu-diagnosis").exists()


def test_options_of_sessions_need_a_far_side() -> None:
    status, _, err = run(*COMMAND, "model:frozen", "--remote-max-cost=1")
    assert (status, "--remote-max-cost is about a far side" in err) == (2, True)


def test_wrong_python_is_found_here() -> None:
    Path("model.py").write_text("def make_model(:\n")
    status, _, err = run(*COMMAND, "model:make_model", "--remote=command:touch begun;false")
    assert (status, Path("begun").exists()) == (3, False)
    assert "your code raised SyntaxError" in err
    assert "(model.py:1)" in err


def test_the_list() -> None:
    status, out, _ = run(*COMMAND, "--list")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines() if not line.startswith(" ")][:2] == [
        "batch",
        "first_step",
    ]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_signals(number: signal.Signals, status: int) -> None:
    """What was measured is kept, and says that it is not all."""
    process = start(*COMMAND, "model:Waits")
    assert until(lambda: Path("waits").exists() and Path("waits").read_text(), 100)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == status, err.decode()
    assert states()["batch"] == "passed"
    assert (data()["complete"], data()["next"]) == (False, None)
    assert "not complete" in Path("remotegpu-diagnosis/report.md").read_text("utf-8")
    assert left() == []
    if number != signal.SIGKILL:
        assert b"STOPPED" in out
        assert set(states().values()) == {"passed", "interrupted", "not run"}
        assert b"Traceback" not in err


def test_ctrl_c_with_a_far_side() -> None:
    process = start(*COMMAND, CPU, "model:Waits")
    assert until(lambda: Path("waits").exists() and Path("waits").read_text(), 100)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err.decode()
    assert states()["batch"] == "passed"
    assert data()["complete"] is False
    assert until(lambda: is_gone("waits"), 10)


def test_whoever_reads_goes_away() -> None:
    process = start(*MODULE, "model:make_model", "--skip=overfit_batch")
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"model:make_model")
    process.stdout.close()
    _, err = process.communicate(timeout=100)
    assert process.returncode == 141, err.decode()


def test_a_folder_of_any_name(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "with space, \udcff and sch\u00f6n"
    folder = project / name
    folder.mkdir()
    (project / "model.py").rename(folder / "model.py")
    monkeypatch.chdir(folder)
    status, out, err = run(*MODULE, "model:make_model", "--only=batch", f"--out={name}")
    assert (status, "report: with space" in out) == (0, True), err
    assert (folder / name / "report.md").is_file()
    status, _, err = run(*MODULE, "nowhere:make_model", "--only=batch", f"--out={name}")
    assert (status, "is neither in this folder" in err) == (2, True)


@pytest.mark.parametrize(
    ("wrap", "status", "state", "told"),
    [
        ("", 0, "passed", "notes: equal-counts"),
        ("plain", 1, "failed", "dropped-all-reduce"),
        ("raises", 3, "raised", "LookupError: in rank 1: only here (model.py:"),
        ("dies", 3, "raised", "rank 1 has ended with exit status 7, without a verdict"),
    ],
)
def test_ranks(wrap: str, status: int, state: str, told: str) -> None:
    check = "gradients_synchronised" if wrap else "loss_scale"
    checks = f"{check},gradients_synchronised"
    words = ("model:make_model", "--ranks=2", f"--only={checks}", f"--wrap={wrap}")
    ended, out, err = run(*MODULE, *words)
    assert ended == status, err
    assert {states()[check], states()["gradients_synchronised"]} == {state}
    assert told in out
    if wrap == "plain":
        assert data()["next"]["code"] == told


@pytest.mark.parametrize(
    ("wrap", "status", "state", "told"),
    [
        ("shards", 0, "passed", "ok       fsdp_matches"),
        ("leaks", 1, "failed", "reduced-in-low-precision"),
        ("plain", 5, "not run", "wrap_model(model) is where fully_shard belongs"),
    ],
)
def test_sharded_ranks(wrap: str, status: int, state: str, told: str) -> None:
    words = ("model:make_model", "--ranks=2", "--only=fsdp_matches", f"--wrap={wrap}")
    ended, out, err = run(*MODULE, *words)
    assert (ended, states()["fsdp_matches"]) == (status, state), err
    assert told in out
    text = Path("remotegpu-diagnosis", "report.md").read_text(encoding="utf-8")
    assert ("Nothing is known: no check was made" in text) == (status == 5)


def test_ranks_end_with_whoever_started_them() -> None:
    words = ("model:make_model", "--ranks=2", "--only=batch,loss_scale", "--wrap=waits")
    process = start(*MODULE, *words)
    assert until(lambda: all(Path(f"rank{n}").exists() for n in (0, 1)), 100)
    assert until(lambda: all(Path(f"rank{n}").read_text() for n in (0, 1)), 10)
    process.kill()
    process.communicate(timeout=60)
    assert until(lambda: is_gone("rank0") and is_gone("rank1"), 10)
    assert states()["batch"] == "passed"
    assert left() == []
