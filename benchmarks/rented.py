"""Measure what a container costs beside a process of this host: ``benchmarks/rented.py [ROUNDS]``.

A thousand trivial tests go, in turn, by ``--remote=modal:T4`` to a service on the loopback
interface and by ``--remote=local:cpu``, both warm: what is printed is the whole time of the one
divided by that of the other. The service, the client and the container share the processors of
this machine, which they do not with the real one.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from bar import Bar
from suites import TRIVIAL, Suite

from loopback import LoopbackModal

MUST: Final = 1.5
ROUNDS: Final = 7
LONGEST: Final = 120.0
REST: Final = 2.5
"""Seconds between two runs, in which what is warm gets warm again."""


def run(folder: Path, spec: str, tests: int, environ: dict[str, str]) -> float:
    """Run the project, and give its seconds.

    :raises SystemExit: where not every test has passed.
    """
    began = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_remotegpu.plugin"]
    done = subprocess.run(
        [*command, f"--remote={spec}"], cwd=folder, capture_output=True, text=True,
        timeout=LONGEST, check=False, env=environ,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    if f"{tests} passed" not in done.stdout:
        raise SystemExit(f"not every test has passed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    time.sleep(REST)
    return seconds


def measure(rounds: int) -> list[float]:
    """Take turns; give the ratio of each round."""
    suite: Suite = TRIVIAL
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        root = suite.write(Path(name))
        with LoopbackModal(Path(name, "modal")) as service:
            kept = {key: value for key, value in os.environ.items() if key != "CI"}
            environ = {**kept, **service.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
            for spec in ("modal:T4", "local:cpu") * 2:
                run(root, spec, suite.tests, environ)
            pairs = []
            for _ in range(rounds):
                pair = [run(root, spec, suite.tests, environ) for spec in ("modal:T4", "local:cpu")]
                pairs.append(pair)
                told = f"{pair[0]:.2f} s / {pair[1]:.2f} s = {pair[0] / pair[1]:.2f}"
                print(told, file=sys.stderr, flush=True)
    return [far / near for far, near in pairs]


def bars(quick: bool) -> list[Bar]:  # noqa: FBT001 -- as all that give bars are told
    """Measure the bar of a container."""
    ratios = tuple(measure(2 if quick else ROUNDS))
    return [Bar("T5", f"{TRIVIAL.name}, modal on loopback / local:cpu", ratios, MUST, 1.2)]


def main() -> None:
    """Print the ratio of each round, and their median."""
    ratios = measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
    print(
        f"{TRIVIAL.name}: modal on loopback / local:cpu {statistics.median(ratios):.2f}"
        f" ({min(ratios):.2f} to {max(ratios):.2f}), at most {MUST}"
    )


if __name__ == "__main__":
    main()
