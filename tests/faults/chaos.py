"""``python -m tests.faults.chaos``: faults drawn at random, one after the other, each judged.

Every kind comes as often as any other. Each fault has a seed of its own, which gives it again. Only
drives and prints; what is drawn, started and judged is said elsewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .catalogue import KINDS
from .kinds import Draw, Kind, repeated
from .running import Home, home, meet

__all__ = ["main"]

ME: Final = "python -m tests.faults.chaos"


class Chaos:
    """Meets with faults, several at a time, and counts.

    :param faults: what is to come. :param kept: a folder for the output of what went wrong.
    """

    def __init__(self, faults: list[tuple[Kind, Draw]], kept: Path) -> None:
        self._faults: Iterator[tuple[int, tuple[Kind, Draw]]] = iter(enumerate(faults, 1))
        self._number = len(faults)
        self._kept = kept
        self._lock = threading.Lock()
        self.met: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()

    def work(self) -> None:
        """Meet with faults in a home of one's own until there are no more."""
        with tempfile.TemporaryDirectory(prefix="faults-") as folder, home(Path(folder)) as mine:
            while (fault := self._next()) is not None:
                self._meet(mine, *fault)

    def _next(self) -> tuple[int, tuple[Kind, Draw]] | None:
        with self._lock:
            return next(self._faults, None)

    def _meet(self, mine: Home, place: int, fault: tuple[Kind, Draw]) -> None:
        kind, draw = fault
        began = time.monotonic()
        running, found = meet(mine, kind, draw)
        seconds = time.monotonic() - began
        with self._lock:
            self.met[kind.name] += 1
            self.seconds[kind.name] += round(seconds * 1000)
            self.missed[kind.name] += kind.strike is not None and not running.struck
            state = "WRONG" if found else "ok"
            print(f"{place:4}/{self._number} {kind.name:18} {draw.seed:10}  {draw!s:42}"
                  f" {seconds:5.1f} s  {state}")  # fmt: skip
            if found:
                self.wrong[kind.name] += 1
                self._explain(kind, draw, running.path.parent, found)
            sys.stdout.flush()
        if not found:
            shutil.rmtree(running.path.parent, ignore_errors=True)

    def _explain(self, kind: Kind, draw: Draw, folder: Path, found: list[str]) -> None:
        kept = self._kept / f"{kind.name}-{draw.seed}"
        with contextlib.suppress(OSError):
            shutil.copytree(folder, kept, dirs_exist_ok=True)
        for text in found:
            print(f"           {text}")
        print(f"           again: {ME} --only {kind.name} --seed {draw.seed}"
              f"{f' --backend {draw.backend}' if len(kind.backends) > 1 else ''}")  # fmt: skip
        print(f"           kept: {kept}")

    def summary(self) -> None:
        """Print how often each kind was met."""
        print(f"\n{'kind':20} {'met':>4} {'wrong':>6} {'missed':>7} {'seconds':>8}")
        for name, met in sorted(self.met.items()):
            mean = self.seconds[name] / met / 1000
            print(f"{name:20} {met:4} {self.wrong[name]:6} {self.missed[name]:7} {mean:8.1f}")
        print(f"{'all':20} {self.met.total():4} {self.wrong.total():6} {self.missed.total():7}")


def _chosen(arguments: argparse.Namespace) -> list[Kind]:
    names = [arguments.only] if arguments.only else arguments.kinds.split(",")
    unknown = [name for name in names if name and name not in KINDS]
    if unknown:
        sys.exit(f"there is no kind {unknown[0]!r}; there are: {', '.join(KINDS)}")
    kinds = [KINDS[name] for name in names if name] or list(KINDS.values())
    if arguments.backend:
        kinds = [
            dataclasses.replace(kind, backends=(arguments.backend,))
            for kind in kinds
            if arguments.backend in kind.backends
        ]
    return kinds


def main() -> int:
    """Do as the command line says.

    :return: the exit status: 1 where anything was not as it must be.
    """
    parser = argparse.ArgumentParser(prog=ME, description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many faults")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="gives them again")
    parser.add_argument("--kinds", default="", help="only these, with commas between")
    parser.add_argument("--only", default="", help="one fault of this kind, with its own seed")
    parser.add_argument("--backend", default="", choices=["", "local:cpu", "local"])
    parser.add_argument("--at-once", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--keep", type=Path, help="a folder for the output of what went wrong")
    arguments = parser.parse_args()
    kinds = _chosen(arguments)
    if arguments.only:
        faults = [(kind, kind.draw(arguments.seed)) for kind in kinds]
    else:
        faults = repeated(arguments.seed, kinds, arguments.count)
    print(f"seed {arguments.seed}, {len(faults)} faults of {len(kinds)} kinds")
    chaos = Chaos(faults, arguments.keep or Path(tempfile.mkdtemp(prefix="faults-kept-")))
    threads = [threading.Thread(target=chaos.work) for _ in range(arguments.at_once)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    chaos.summary()
    print(f"seed {arguments.seed}, {time.monotonic() - began:.0f} s")
    done = chaos.met.total() == len(faults)
    return 0 if done and not chaos.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
