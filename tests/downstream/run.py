"""``python -m tests.downstream.run``: other projects' suites, plainly and far away, and compared.

    python -m tests.downstream.run --write          all, with the results beside this file
    python -m tests.downstream.run toolz anyio      only these
    python -m tests.downstream.run --legs=card einops   on a CUDA host, by --remote=local

Each suite gets an environment of its own, with the release that `suites.toml` names by its hash,
and with this package as pip installs it. Needs Linux, and an index of packages. The exit status is
0 where nothing differs but what `differences.toml` explains, and where all tests of a leg ran far
away.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from .environments import installed
from .legs import FAR, LEGS, PLAIN, Leg, Place
from .outcomes import compare
from .results import Row, verdict, write
from .suites import Explained, Suite, load_explained, load_suites

__all__ = ["main"]


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.downstream.run", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="all of them if none is named")
    parser.add_argument(
        "--legs",
        default=",".join(leg.name for leg in FAR),
        help=f"comma-separated, of {', '.join(LEGS)}; %(default)s is the default",
    )
    parser.add_argument("--work", type=Path, help="keep environments and logs in this folder")
    parser.add_argument("--wheels", type=Path, help="install from this folder and ask no index")
    parser.add_argument("--here", action="store_true", help="into the interpreter that runs this")
    parser.add_argument("--only", metavar="EXPRESSION", help="-k of all runs; nothing is written")
    parser.add_argument("--limit", type=float, default=1200, help="seconds for one run")
    parser.add_argument("--write", action="store_true", help="write results.md and results.json")
    return parser.parse_args(argv)


@contextlib.contextmanager
def _folder(asked: Path | None) -> Iterator[Path]:
    if asked is not None:
        asked.mkdir(parents=True, exist_ok=True)
        yield asked.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="downstream-") as made:
        yield Path(made)


def _rows(
    place: Place, legs: Sequence[Leg], known: Sequence[Explained], limit: float
) -> Iterator[Row]:
    """Run one suite plainly and by each leg, and say what came of each as soon as it is known."""
    plain = place.run(PLAIN, limit)
    yield _said(Row(place.suite.name, PLAIN.name, plain))
    for leg in legs:
        other = place.run(leg, limit)
        found = tuple(compare(plain, other))
        yield _said(
            Row(place.suite.name, leg.name, other, found, verdict(leg, place.suite, found, known))
        )


def _said(row: Row) -> Row:
    print(row, flush=True)
    return row


def _run(suites: Sequence[Suite], legs: Sequence[Leg], arguments: argparse.Namespace) -> list[Row]:
    known = load_explained()
    wheels = arguments.wheels and arguments.wheels.resolve()
    rows: list[Row] = []
    for suite in suites:
        with contextlib.ExitStack() as stack:
            # several environments with torch at a time are more than many a disk has room for
            work = stack.enter_context(_folder(arguments.work))
            runtime = stack.enter_context(tempfile.TemporaryDirectory(prefix="ds-"))
            made = installed(suite, work, Path(runtime), wheels, here=arguments.here)
            place = stack.enter_context(made)
            if arguments.only:
                more = (*place.suite.args, "-k", arguments.only)
                place = replace(place, suite=replace(place.suite, args=more))
            rows += _rows(place, legs, known, arguments.limit)
    return rows


def main(argv: Sequence[str]) -> int:
    """Run what the command line asks for, and return the exit status.

    :raises KeyError: for a name of no suite, or of no leg.
    :raises subprocess.CalledProcessError: if a suite can't be installed.
    """
    arguments = _arguments(argv)
    _, suites = load_suites(arguments.suites)
    rows = _run(suites, [LEGS[name] for name in arguments.legs.split(",")], arguments)
    if arguments.write and not arguments.only:
        write(rows, load_suites()[1])
    wrong = [row for row in rows if not row.good]
    tests = sum(len(row.outcomes.cases) for row in rows if row.leg == PLAIN.name)
    print(f"{len(suites)} suites, {tests} tests, {len(wrong)} runs that are not as the plain one")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
