"""Measure how long an edit takes to become a result: ``benchmarks/edit.py [--remote SPEC]``.

A file that imports torch is changed, and its one marked test is run: by plain pytest, with a
warm far side that collects the file itself, and with one of which nothing is there yet. They take
turns; what is printed are ratios within a round. The changed value is part of what the test prints,
so that a stale run is an error and no good time. On a host with cards, ``--remote local`` runs the
same on a card. The session's own memory is set beside that of plain pytest on a file without torch.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import machine
from bar import Bar

TEST: Final = """\
import pytest
import torch

VALUE = {value}


@pytest.mark.gpu
def test_edited():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ones = torch.ones(64, 64, device=device)
    assert (ones @ ones)[0, 0].item() == 64
    print("EDITED", VALUE, device)
"""
EMPTY: Final = "def test_nothing():\n    print('EDITED {value} ')\n"
PLAIN: Final = "plain"
WARM: Final = "warm"
FIRST: Final = "first"
LIGHT: Final = "without torch"
OURS: Final = ("-p", "pytest_remotegpu.plugin", "-o", "remotegpu_collect=far")
CARDS: Final = "cards"
LIMITS: Final = {WARM: 0.20, CARDS: 0.40, FIRST: 1.3, LIGHT: 2.0}
"""What the ratios are held to: of time to plain pytest's, and of memory to that without torch.

On cards both sides spend most of their time on making a context, which nothing can keep warm.
"""


@dataclass(frozen=True)
class Seen:
    """One run: its seconds, those of the processor, its peak memory in KiB, what it printed.

    Processor and memory are those of the process that the user sees, and of children it waits for.
    """

    seconds: float
    cpu: float
    peak: int
    text: str


def environment() -> dict[str, str]:
    """Give a user's environment: bytecode is written, plugins are loaded by name."""
    ours = ("PYTEST", "PYTHON", "COV_", "COVERAGE", "REMOTEGPU")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    kept.pop("CI", None)  # there nothing would be kept warm
    return kept | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def run(root: Path, value: int, *args: str, text: str = TEST) -> Seen:
    """Edit the file, then run it.

    :raises SystemExit: where the run did not pass with the edited value.
    """
    (root / "test_edit.py").write_text(text.format(value=value), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-rP", "-p", "no:cacheprovider", *args]
    with (root / "output").open("w+b") as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=root, env=environment(), stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    if process.returncode or f"EDITED {value} " not in text:
        raise SystemExit(f"{args} did not run the edited test:\n{text}")
    return Seen(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss, text)


def measure(root: Path, spec: str, rounds: int) -> list[dict[str, Seen]]:
    """Take turns; the first round, in which things become warm, is not counted."""
    found = []
    for number in range(rounds + 2):
        one = {
            PLAIN: run(root, 4 * number, "-o", "markers=gpu"),
            WARM: run(root, 4 * number + 1, *OURS, f"--remote={spec}", "--remote-timeline"),
            FIRST: run(root, 4 * number + 2, *OURS, f"--remote={spec}", "--remote-fresh"),
            LIGHT: run(root, 4 * number + 3, text=EMPTY),
        }
        brief = ", ".join(f"{name} {seen.seconds:.2f} s" for name, seen in one.items())
        print(f"round {number}: {brief}", file=sys.stderr, flush=True)
        if number > 1:
            found.append(one)
    return found


def _ratio(values: list[float], which: str = "") -> str:
    limit = f", at most {LIMITS[which]}" if which else ""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f}){limit}"


def bars(quick: bool, spec: str = "local:cpu") -> list[Bar]:  # noqa: FBT001 -- as all are told
    """Measure the bars of an edit; on a host with cards that of cards alone."""
    with tempfile.TemporaryDirectory(prefix="benchmark-edit-") as folder:
        found = measure(Path(folder), spec, 2 if quick else 5)

    def ratios(one: str, other: str, of: Callable[[Seen], float]) -> tuple[float, ...]:
        return tuple(of(each[one]) / of(each[other]) for each in found)

    warm = ratios(WARM, PLAIN, lambda seen: seen.seconds)
    if not spec.startswith("local:cpu"):
        return [Bar("T2g", "edit to result on a card, warm / plain", warm, LIMITS[CARDS], 0.15)]
    memory = ratios(WARM, LIGHT, lambda seen: seen.peak)
    first = ratios(FIRST, PLAIN, lambda seen: seen.seconds)
    return [
        Bar("T2", "edit to result, warm / plain", warm, LIMITS[WARM], 0.13),
        Bar("T2c", "peak memory of that / plain without torch", memory, LIMITS[LIGHT], 1.3),
        Bar("T2d", "with nothing there yet / plain", first, LIMITS[FIRST], 1.1),
    ]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--remote", default="local:cpu", help="the far side")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmark-edit-") as folder:
        found = measure(Path(folder), given.remote, given.rounds)
    seconds = [one[WARM].seconds / one[PLAIN].seconds for one in found]
    cpu = [one[WARM].cpu / one[PLAIN].cpu for one in found]
    first = [one[FIRST].seconds / one[PLAIN].seconds for one in found]
    memory = [one[WARM].peak / one[PLAIN].peak for one in found]
    light = [one[WARM].peak / one[LIGHT].peak for one in found]
    print(machine.describe(), machine.versions(), sep="\n")
    limit = WARM if given.remote.startswith("local:cpu") else CARDS
    print(f"edit to result, {given.remote} warm / plain pytest: {_ratio(seconds, limit)}")
    print(f"processor time of the process that the user sees, the same: {_ratio(cpu)}")
    print(f"with nothing there yet / plain pytest: {_ratio(first, FIRST)}")
    print(f"peak memory of the process that the user sees / plain pytest: {_ratio(memory)}")
    print(f"the same / plain pytest on a file without torch: {_ratio(light, LIGHT)}")
    print(f"seconds: warm {found[-1][WARM].seconds:.2f}, plain {found[-1][PLAIN].seconds:.2f}")
    print("the last warm run:")
    lines = found[-1][WARM].text.splitlines()
    start = next(at for at, line in enumerate(lines) if "remote timeline" in line)
    print("\n".join(line for line in lines[start:] if not line.startswith("=")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
