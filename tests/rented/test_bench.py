"""``remotegpu bench fa2`` on rented cards: which, in what order, at what cost, and which never."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loopback import LoopbackModal

pytestmark = pytest.mark.timeout(240)  # a machine may be busy with other tests
torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="what measures needs torch"
)
TINY = [
    *("--set=lengths=32", "--set=windows=16", "--set=branches=sliding"),
    *("--set=rounds=7", "--set=warmup=1", "--set=columns=masked,fa2"),
]
"""A sweep that takes no time."""

Done = subprocess.CompletedProcess[str]


def bench(*words: str) -> Done:
    """Run the command as a user's shell would."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest_remotegpu", "bench", "fa2", *words],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert "INTERNALERROR" not in done.stderr
    assert "Traceback (most recent call last)" not in done.stderr
    return done


def read(path: str) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def rented(service: LoopbackModal) -> list[str]:
    return sorted(str(container.gpu) for container in service.containers)


@torch
def test_two_cards_in_one_command(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """Side by side, the cheapest first; each with its bill, one table in the end."""
    assert pytester.path.is_dir()
    done = bench("--remote=modal:A100", "--remote=modal:L4", "--out=all", *TINY)
    assert done.returncode == 5, done.stderr
    assert rented(service) == ["A100-40GB:1", "L4:1"]
    table = done.stdout.partition("where ")[2]
    places = [line.split()[0] for line in table.splitlines()[1:3]]
    assert places == ["modal:L4", "modal:A100"]
    costs = []
    for place in ("modal-L4", "modal-A100"):
        found = read(f"all/{place}/fa2.json")
        costs.append(found["cost"]["total"])
        assert found["cost"]["currency"] == "USD"
        assert found["cost"]["total"] > 0
        assert found["device_info"]["cuda_available"] is False  # these containers have none
        assert "| cost | " in Path(f"all/{place}/report.md").read_text(encoding="utf-8")
    for place, cost in zip(("modal:L4", "modal:A100"), costs, strict=True):
        assert re.search(rf"^{place} +5 +{cost:.4f} USD, ", table, re.MULTILINE), table
    for line in done.stderr.splitlines():
        assert line.startswith(("[modal:L4]", "[modal:A100]")), line
    assert "[1]  modal:L4 " in done.stdout
    assert "[2]  modal:A100 " in done.stdout


@torch
def test_without_a_type_it_gets_the_cheapest_card_that_does(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """That is no T4, which tests would get."""
    pytester.makefile(".yaml", config="runtime:\n  fa2_min_len_win: 8192\n")
    done = bench("--remote=modal", "--update-config=config.yaml", "--remote-json=run.json", *TINY)
    assert done.returncode == 5, done.stderr
    assert rented(service) == ["L4:1"]
    total = read("run.json")["cost"]["total"]
    assert read("remotegpu-fa2/fa2.json")["cost"]["total"] == pytest.approx(total)
    assert "config.yaml stays as it is: no card was used\n" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--remote=modal:T4"],
            "T4 has capability 7.5 (FlashAttention-2 needs 8.0); what does: --remote=modal:L4, or",
        ),
        (
            ["--remote=modal:T4,A100"],
            (
                "--remote=modal:T4,A100 names T4, whose capability is less than the 8.0 that "
                "FlashAttention-2 needs; leave it out: --remote=modal:A100-40GB\n"
            ),
        ),
        (["--remote=modal:L4", "--remote=modal:t4"], "T4 has capability 7.5"),
        (["--remote=modal:H1000"], "which is no GPU of Modal's"),
        (["--remote=modal:L4", "--sweep=none.toml"], "the sweep none.toml can't be read"),
        (["--remote=modal:L4", "--out=a.py"], "--out=a.py can't be written"),
        (["--remote=modal:L4", "--update-config=none.toml"], "none.toml can't be read"),
        (["--remote=modal:L4", "--remote-max-cost=0.0001"], "--remote-max-cost=0.0001"),
    ],
)
def test_what_is_refused_before_anything_is_rented(
    pytester: pytest.Pytester, service: LoopbackModal, words: list[str], told: str
) -> None:
    pytester.makepyfile(a="")
    done = bench(*words, *TINY)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert told in done.stderr
    assert service.containers == []
    assert "cost" in told or service.calls == []


@torch
def test_a_card_that_is_not_to_be_had_takes_no_other_along(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """A cap that only the dear one breaks."""
    assert pytester.path.is_dir()
    words = ["--remote-max-cost=1", "--remote-run-timeout=600"]
    done = bench("--remote=modal:B200", "--remote=modal:L4", "--out=all", *words, *TINY)
    assert done.returncode == 2, done.stderr
    assert rented(service) == ["L4:1"]
    assert re.search(r"^modal:B200 +2 +- +none has come back$", done.stdout, re.MULTILINE)
    assert re.search(r"^modal:L4 +5 +0\.\d+ USD", done.stdout, re.MULTILINE)
    assert "[modal:B200] remote: cost: refused: --remote-max-cost=1: " in done.stderr
