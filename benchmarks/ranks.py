"""Measure how long a test of two ranks takes: ``benchmarks/ranks.py [--remote SPEC]``.

The same test, an all-reduce, is run by pytest under torchrun and with a warm far side that collects
it, in turns; what is printed are ratios within a round. On a host with two cards, what is named by
``--remote local`` runs it by NCCL.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import machine
from bar import Bar

TEST: Final = """\
import os

import pytest
import torch
import torch.distributed as dist


@pytest.mark.gpu(2, launcher="torchrun")
def test_all_reduce():
    rank, cards = int(os.environ["RANK"]), torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cards else torch.device("cpu")
    if cards:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cards else "gloo")
    ones = torch.ones(1, device=device)
    dist.all_reduce(ones)
    assert ones.item() == dist.get_world_size() == 2
    dist.destroy_process_group()
    print("REDUCED", rank, device.type)
"""
LIMITS: Final = {"cpu": 0.20, "cuda": 0.40}
"""What the ratio is held to, by where the ranks compute."""
TORCHRUN: Final = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
OURS: Final = ("-p", "pytest_remotegpu.plugin", "-o", "remotegpu_collect=far")


def environment() -> dict[str, str]:
    """Give a user's environment; neither side may use more threads than the other."""
    ours = ("PYTEST", "PYTHON", "COV_", "COVERAGE", "REMOTEGPU")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    kept.pop("CI", None)  # there nothing would be kept warm
    return kept | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}


def run(root: Path, *command: str) -> tuple[float, str]:
    """Run the test; give its seconds, and where it has computed.

    :raises SystemExit: where not both ranks have.
    """
    start = time.perf_counter()
    process = subprocess.run(
        [sys.executable, *command], cwd=root, env=environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    where = [
        kind for kind in LIMITS if all(f"REDUCED {n} {kind}" in process.stdout for n in (0, 1))
    ]
    if process.returncode or not where:
        raise SystemExit(f"{command} has not run both ranks:\n{process.stdout}")
    return seconds, where[0]


def measure(root: Path, spec: str, rounds: int) -> tuple[list[tuple[float, float]], str]:
    """Take turns; the first round, in which things become warm, is not counted."""
    (root / "test_ranks.py").write_text(TEST, encoding="utf-8")
    pytest = ("-m", "pytest", "-rP", "-p", "no:cacheprovider")
    found = []
    where = ""
    for number in range(rounds + 1):
        peer, _ = run(root, *TORCHRUN, *pytest, "-o", "markers=gpu")
        seconds, where = run(root, *pytest, *OURS, f"--remote={spec}")
        text = f"round {number}: torchrun {peer:.2f} s, warm {seconds:.2f} s"
        print(text, file=sys.stderr, flush=True)
        if number:
            found.append((seconds, peer))
    return found, where


def bars(quick: bool, spec: str = "local:cpu") -> list[Bar]:  # noqa: FBT001 -- as all are told
    """Measure the bar of two ranks."""
    with tempfile.TemporaryDirectory(prefix="benchmark-ranks-") as folder:
        found, where = measure(Path(folder), spec, 2 if quick else 5)
    name, aim = ("T7g", 0.20) if where == "cuda" else ("T7", 0.06)
    ratios = tuple(seconds / peer for seconds, peer in found)
    what = f"a test of two ranks ({where}), warm / pytest under torchrun"
    return [Bar(name, what, ratios, LIMITS[where], aim)]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--remote", default="local:cpu", help="the far side")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmark-ranks-") as folder:
        found, where = measure(Path(folder), given.remote, given.rounds)
    ratios = [seconds / peer for seconds, peer in found]
    median, least, most = statistics.median(ratios), min(ratios), max(ratios)
    print(machine.describe(), machine.versions(), sep="\n")
    print(
        f"a test of two ranks ({where}), {given.remote} warm / pytest under torchrun: "
        f"{median:.2f} ({least:.2f} to {most:.2f}), at most {LIMITS[where]}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
