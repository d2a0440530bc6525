"""The suite on whole projects: a clean one passes, each planted fault is named, nothing is dropped.

One process makes all runs, since importing torch takes longer than most of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_remotegpu.diagnostics import Verdict, order

pytestmark = pytest.mark.timeout(300)  # a machine may be busy with other tests

ZOO = """
import os
import torch
from torch import nn
from torch.nn import functional as F
from models import TinyLlama, sentence

def make_model():
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))

def loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])

def make_batch():
    return torch.randn(6, 8), torch.arange(6) % 4

def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)

# data
FIXED = make_batch()
def LOSS_OF(model, batch): return model(**batch)["loss"]

def nan_inputs():
    inputs, labels = make_batch()
    inputs[2, 3] = float("nan")
    return inputs, labels

def empty(): return torch.randn(0, 8), torch.arange(0)
def labels_from_1(): return torch.randn(6, 8), torch.arange(6) % 4 + 1
def linear(): return nn.Linear(8, 4)
TEXT = "none"
def ignored(): return torch.randn(6, 8), torch.full((6,), -100)
def one_class(): return torch.randn(6, 8), torch.full((6,), 2)
def shuffled(): return FIXED[0], FIXED[1][torch.randperm(6)]
def unscaled(): return 255 * torch.rand(6, 8), torch.arange(6) % 4
def one_row(): return torch.randn(1, 8), torch.tensor([3])
def dataset(): return torch.utils.data.TensorDataset(torch.randn(20, 8), torch.arange(20) % 4)
def loader(): return torch.utils.data.DataLoader(dataset(), batch_size=5, shuffle=True)
NUMBERS = torch.randn(6, 8), torch.randn(6, 4)

# models
def frozen():
    model = make_model()
    model[0].requires_grad_(False)
    return model

class Logs(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = make_model()

    def forward(self, inputs):
        return self.net(inputs).log()

class Raises(Logs):
    def forward(self, inputs):
        raise RuntimeError("no such shape")  # the line that is named

class Mixes(Logs):
    def forward(self, inputs):
        return self.net(inputs - inputs.mean(0))

class Attends(Logs):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, inputs):
        rows = torch.stack([inputs.roll(n, -1) for n in range(5)], 1)
        return self.net(self.attention(rows, rows, rows, need_weights=False)[0].mean(1))

def normed():
    return nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 4))

def factory_raises(): raise LookupError("no weights")
def factory_exits(): raise SystemExit(0)
def nothing(): make_model()
def starred(*sizes, **more): return make_model()
NOT_A_MODEL = 5

# the rest
CRITERION = nn.CrossEntropyLoss()
def of_output(output, target): return F.cross_entropy(output, target)
def detached(model, batch): return loss(model, batch).detach()
def squares(model, batch): return F.mse_loss(model(batch[0]), batch[1])
def vectors(model, batch): return F.cross_entropy(model(batch[0]), batch[1], reduction="none")
def high(model): return torch.optim.SGD(model.parameters(), lr=10.0)
def low(model): return torch.optim.SGD(model.parameters(), lr=1e-7)
def unweighted(model, parts):
    for part in parts:
        (loss(model, part) / len(parts)).backward()
def own_step(model, optimizer, batch):
    optimizer.zero_grad()
    value = loss(model, batch)
    value.backward()
    return value

def llama(): return TinyLlama()
def words(): return sentence(4)
def strange_words():
    batch = sentence(4)
    batch["input_ids"][1, 2] = 1000
    return batch
"""

DRIVER = """
import json, sys
from pathlib import Path
import torch
from pytest_remotegpu.diagnostics.__main__ import main

torch.set_num_threads(1)
statuses = {}
for name, words in json.loads(Path("cases.json").read_text()).items():
    statuses[name] = main([*words, f"--out={name}"])
    Path("statuses.json").write_text(json.dumps(statuses))
"""

SQUARES = ["--loss=squares", "--batch=NUMBERS"]
CLEAN = {
    "clean": ["zoo:make_model", "--compile-backend=eager"],
    "seed": ["zoo:make_model", "--seed=4294967294", "--only=batch"],
    "criterion": ["zoo:make_model", "--loss=CRITERION", "--batch=FIXED", "--only=initial_loss"],
    "of_output": ["zoo:make_model", "--loss=of_output", "--only=first_step"],
    "dataset": ["zoo:make_model", "--batch=dataset", "--only=batch"],
    "loader": ["zoo:make_model", "--batch=loader", "--only=batch,overfit_batch"],
    "llama": ["zoo:llama", "--batch=words", "--loss=LOSS_OF", "--only=first_step"],
    "alone": ["alone:llama"],
    "fixed": ["zoo:frozen", "--fixed=0.*", "--only=overfit_sample"],
    "normed": ["zoo:normed"],
    "attends": ["zoo:Attends"],
    "squares": ["zoo:make_model", "--loss=squares", "--batch=NUMBERS", "--skip=overfit_batch"],
    "one_row": ["zoo:make_model", "--batch=one_row"],
    "one_class": ["zoo:make_model", "--batch=one_class", "--only=batch"],
    "only": ["zoo:make_model", "--only=overfit_sample,batch"],
    "starred": ["zoo:starred", "--only=batch"],
}
FAULTS = {
    "nan_inputs": (["zoo:make_model", "--batch=nan_inputs"], "batch", "not-finite"),
    "empty": (["zoo:make_model", "--batch=empty"], "batch", "empty-batch"),
    "labels": (["zoo:make_model", "--batch=labels_from_1"], "batch", "label-out-of-range"),
    "ignored": (["zoo:make_model", "--batch=ignored"], "batch", "ignored-targets"),
    "shuffled": (["zoo:make_model", "--batch=shuffled"], "batch", "shuffled-targets"),
    "tokens": (["alone:llama", "--batch=zoo:strange_words"], "batch", "index-out-of-range"),
    "logs": (["zoo:Logs"], "first_step", "not-finite"),
    "detached": (["zoo:make_model", "--loss=detached"], "first_step", "detached-loss"),
    "unscaled": (["zoo:linear", "--batch=unscaled"], "initial_loss", "initial-loss-high"),
    "frozen": (["zoo:frozen"], "overfit_sample", "frozen-parameters"),
    "high": (
        ["zoo:linear", "--optimizer=high", *SQUARES],
        "overfit_sample",
        "learning-rate-too-high",
    ),
    "low": (["zoo:make_model", "--optimizer=low"], "overfit_sample", "learning-rate-too-low"),
    "step": (
        ["zoo:make_model", "--train-step=own_step"],
        "overfit_sample",
        "optimizer-not-stepped",
    ),
    "loop": (
        ["zoo:make_model", "--accumulate=unweighted"],
        "accumulation_matches",
        "mean-of-means",
    ),
    "mixes": (["zoo:Mixes", "--skip=overfit_sample"], "accumulation_matches", "batch-dependent"),
}
RAISES = {
    "forward": (["zoo:Raises"], "batch", "RuntimeError: no such shape"),
    "factory": (["zoo:factory_raises"], "model", "LookupError: no weights"),
    "exits": (["zoo:factory_exits"], "model", "SystemExit: 0"),
    "imports": (["broken:make_model"], "model", "ModuleNotFoundError: No module named 'nowhere'"),
    "syntax": (["wrong:make_model"], "model", "SyntaxError: "),
    "vectors": (["zoo:make_model", "--loss=vectors"], "first_step", "ValueError: the loss has 6"),
}
NOT_MEANT = {
    "nothing": (
        ["zoo:nothing"],
        "zoo:nothing gave a NoneType, and has to return a torch.nn.Module",
    ),
    "number": (["zoo:NOT_A_MODEL"], "zoo:NOT_A_MODEL is an int, not a function that makes a model"),
    "class": (
        ["models:Block", "--batch=zoo:words"],
        "models:Block needs arguments (hidden, heads)",
    ),
    "lossless": (["lossless:make_model"], "no loss: lossless has none of loss, loss_fn"),
    "logits": (["lossless:make_model", "--batch=INPUTS"], "gives a Tensor of shape (6, 4)"),
    "text": (["zoo:make_model", "--batch=zoo:TEXT"], "--batch=zoo:TEXT gave a str without"),
    "number loss": (["zoo:make_model", "--loss=NOT_A_MODEL"], "--loss=NOT_A_MODEL is an int"),
    "device": (["zoo:make_model", "--device=nonsense"], "--device=nonsense can't be had here"),
}
FILES = {
    "zoo": ZOO,
    "alone": "from zoo import llama\nfrom zoo import words as make_batch\n",
    "lossless": "from zoo import make_model, make_batch\nINPUTS = make_batch()[0]\n",
    "broken": "import nowhere\ndef make_model(): pass\nbatch = 1\n",
    "wrong": "def make_model(:\n",
}


class Runs:
    """What came of all of them."""

    def __init__(self, folder: Path, statuses: Mapping[str, int], shown: str) -> None:
        self.folder, self.statuses, self.shown = folder, statuses, shown

    def data(self, name: str) -> Any:
        return json.loads((self.folder / name / "report.json").read_bytes())

    def states(self, name: str) -> dict[str, str]:
        return {check["name"]: check["state"] for check in self.data(name)["checks"]}

    def check(self, name: str, of: str) -> Any:
        return next(check for check in self.data(name)["checks"] if check["name"] == of)

    def text(self, name: str) -> str:
        return (self.folder / name / "report.md").read_text("utf-8")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("suite")
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    models = Path(__file__).with_name("models.py").read_text("utf-8")
    (folder / "models.py").write_text(models, encoding="utf-8")
    told = {**FAULTS, **RAISES, **NOT_MEANT}
    cases = {**CLEAN, **{name: case[0] for name, case in told.items()}}
    (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    (folder / "drive.py").write_text(DRIVER, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "drive.py"],
        cwd=folder,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    statuses = json.loads((folder / "statuses.json").read_bytes())
    assert statuses.keys() == cases.keys()
    return Runs(folder, statuses, done.stdout + done.stderr)


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_model_passes(name: str, runs: Runs) -> None:
    assert (runs.statuses[name], runs.data(name)["next"]) == (0, None), runs.text(name)
    assert [check["name"] for check in runs.data(name)["checks"]] == [*order.names()]
    assert runs.data(name)["complete"]
    for check in runs.data(name)["checks"]:
        assert (check["state"] == "not run") == bool(check["because"])
        for file in check["files"]:
            assert (runs.folder / name / file).stat().st_size
            assert f"]({file})" in runs.text(name)


@pytest.mark.parametrize(
    ("name", "passed", "not_run"),
    [
        ("clean", ["batch", "first_step", "initial_loss", "overfit_batch", "compile_parity"], {}),
        ("alone", ["initial_loss", "overfit_batch", "attention_parity"], {}),
        ("attends", ["attention_parity"], {}),
        ("normed", ["accumulation_matches"], {"overfit_sample": "BatchNorm"}),
        ("squares", ["overfit_sample"], {"initial_loss": "no cross_entropy"}),
        (
            "one_row",
            ["overfit_sample"],
            {"overfit_batch": "one row", "accumulation_matches": "fewer"},
        ),
        ("only", ["batch", "overfit_sample"], {"first_step": "--only does not name it"}),
        ("squares", [], {"overfit_batch": "--skip names it", "loss_scale": "with --ranks only"}),
    ],
)
def test_what_is_run_and_why_not(
    name: str, passed: list[str], not_run: dict[str, str], runs: Runs
) -> None:
    states = runs.states(name)
    assert {check: states[check] for check in passed} == dict.fromkeys(passed, "passed")
    for check, because in not_run.items():
        assert because in runs.check(name, check)["because"]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(name: str, runs: Runs) -> None:
    _, check, code = FAULTS[name]
    data = runs.data(name)
    assert (runs.statuses[name], data["status"], data["complete"]) == (1, 1, True)
    assert (data["next"]["check"], data["next"]["code"]) == (check, code)
    assert runs.text(name).index(code) < runs.text(name).index("## Checks")
    assert Verdict.from_plain(runs.check(name, check)["verdict"]).codes[0] == code
    assert [each["name"] for each in data["checks"]] == [*order.names()]
    needing = [step.name for step in order.STEPS if check in step.needs and not step.option]
    for each in needing:
        if "--skip" not in runs.check(name, each)["because"]:
            assert runs.check(name, each)["because"] == f"{check} failed: {code}"


@pytest.mark.parametrize("name", RAISES)
def test_what_the_users_code_raises_is_shown(name: str, runs: Runs) -> None:
    _, check, head = RAISES[name]
    data = runs.data(name)
    assert (runs.statuses[name], data["status"]) == (3, 3)
    assert data["next"]["check"] == check
    assert data["next"]["what"].startswith(head)
    error = runs.check(name, check)["error"]
    assert error["traceback"] in runs.text(name)
    assert len(data["checks"]) == len(order.STEPS) + (check == "model")


def test_the_line_is_named(runs: Runs) -> None:
    line = ZOO.splitlines().index(
        '        raise RuntimeError("no such shape")  # the line that is named'
    )
    error = runs.check("forward", "batch")["error"]
    assert (error["file"], error["line"]) == ("zoo.py", line + 1)
    assert "diagnostics" not in error["traceback"]
    error = runs.check("syntax", "model")["error"]
    assert (error["file"], error["line"]) == ("wrong.py", 1)
    error = runs.check("imports", "model")["error"]
    assert (error["file"], error["line"]) == ("broken.py", 1)


@pytest.mark.parametrize("name", NOT_MEANT)
def test_what_is_missing_is_said(name: str, runs: Runs) -> None:
    """It says what to write, and leaves no folder."""
    assert runs.statuses[name] == 2
    assert NOT_MEANT[name][1] in runs.shown
    assert not (runs.folder / name).exists()


def test_notes_are_no_failures(runs: Runs) -> None:
    codes = Verdict.from_plain(runs.check("one_class", "batch")["verdict"]).codes
    assert codes == ("one-class",)
    codes = Verdict.from_plain(runs.check("normed", "accumulation_matches")["verdict"]).codes
    assert codes == ("batch-dependent", "no-loop")


def test_advice_is_for_the_command_line(runs: Runs) -> None:
    assert "--fixed=PATTERN" in runs.data("frozen")["next"]["next_step"]


def test_the_report_says_what_ran_where(runs: Runs) -> None:
    text = runs.text("clean")
    for row in ("target | zoo:make_model", "parameters | 420", "dtype | float32", "seed | 0"):
        assert f"| {row} |" in text
    assert "| device | " in text
    assert "| torch | 2." in text


@pytest.mark.parametrize("seed", range(10))
def test_first_loss_of_clean_models(seed: int) -> None:
    """The bound leaves room for what random weights do, ten seeds in ten."""
    import torch  # noqa: PLC0415 -- may be missing

    from diagnostics.models import TinyLlama, classify, mlp, sentence  # noqa: PLC0415 -- needs it
    from pytest_remotegpu.diagnostics import batches, beginnings, peeking  # noqa: PLC0415 -- as well

    torch.manual_seed(seed)
    pair = torch.randn(4, 8), torch.arange(4)
    for model, run in ((mlp(), classify), (TinyLlama(), batches.loss_of)):
        batch = pair if run is classify else sentence(2, seed=seed)
        seen = peeking.peek(model, partial(run, model, batch))
        verdict = beginnings.begins_at_chance(seen.entropies, seen.value.item)
        assert verdict.codes == ()
        assert verdict.value("loss") == pytest.approx(verdict.value("cross entropy"), rel=1e-5)
