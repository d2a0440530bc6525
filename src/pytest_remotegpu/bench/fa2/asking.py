"""What a sweep of FlashAttention-2 may be asked: options, read from a command line, written to one.

Must import no torch: it is asked on hosts that have none.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.bench.fa2 import sweep
from pytest_remotegpu.bench.fa2.judging import REFERENCES, Question
from pytest_remotegpu.bench.fa2.rows import Direction, Regime
from pytest_remotegpu.bench.fa2.sweep import Sweep
from pytest_remotegpu.errors import UsageError

__all__ = ["FOLDER", "Asked", "add", "add_question", "add_update", "question", "read", "words"]

FOLDER: Final = "remotegpu-fa2"
"""Where document and report go unless said."""
MOST: Final = 1000


@dataclass(frozen=True, slots=True)
class Asked:
    """What a sweep is asked.

    :ivar sweep: what to measure. :ivar path: the file that says so; empty for the default.
    :ivar changes: of it, as words. :ivar repetitions: of the whole sweep.
    :ivar adaptive: whether lengths are searched by halves, in place of all of them.
    :ivar update: the configuration that gets the thresholds; empty for none.
    :ivar dry: whether that is only shown. :ivar history: the file that gets the results, too.
    :ivar away: whether somebody elsewhere shows the result.
    """

    sweep: Sweep
    path: str = ""
    changes: tuple[str, ...] = ()
    question: Question = field(default_factory=Question)
    repetitions: int = 1
    adaptive: bool = False
    out: str = FOLDER
    update: str = ""
    dry: bool = False
    history: str = ""
    away: bool = False


def add(parser: Any) -> None:
    """Let a command take the options of a sweep."""
    parser.add_argument(
        "--sweep", default="", metavar="FILE", help="what to measure, in TOML (the usual sizes)"
    )
    parser.add_argument("--sweep-json", default="", help=argparse.SUPPRESS)
    parser.add_argument(
        "--set", dest="changes", action="append", default=[], metavar="KEY=VALUE",
        help="measure otherwise, such as lengths=1024,2048 or dtypes=bfloat16",
    )  # fmt: skip
    parser.add_argument(
        "--repetitions", type=_repetitions, default=0, metavar="N", help="of the whole sweep"
    )
    parser.add_argument(
        "--adaptive", action="store_true", help="search lengths by halves, not all of them"
    )
    add_question(parser)
    parser.add_argument(
        "--out", default=FOLDER, metavar="FOLDER", help=f"for document and report ({FOLDER})"
    )
    parser.add_argument(
        "--history", default="", metavar="FILE", help="add the results to a history"
    )
    add_update(parser)
    parser.add_argument("--away", action="store_true", help=argparse.SUPPRESS)


def add_question(parser: Any) -> None:
    """Let a command take what is to be decided."""
    usual = Question()
    parser.add_argument(
        "--margin", type=_margin, default=None, metavar="X",
        help=f"how many times faster it has to be ({usual.margin:g})",
    )  # fmt: skip
    parser.add_argument(
        "--regime", choices=list(map(str, Regime)), default=None,
        help=f"which time counts: with Python and launches, or the card's own ({usual.regime})",
    )  # fmt: skip
    parser.add_argument(
        "--reference", choices=REFERENCES, default=None, help=f"than what ({usual.reference})"
    )
    parser.add_argument(
        "--window", action="append", type=_windows, default=[], metavar="W,...",
        help="the windows that you use (all that are measured)",
    )  # fmt: skip
    parser.add_argument(
        "--direction", action="append", choices=list(map(str, Direction)), default=[],
        help="only this one (all that are measured)",
    )  # fmt: skip


def add_update(parser: Any) -> None:
    """Let a command take a configuration to change."""
    parser.add_argument(
        "--update-config", default="", metavar="FILE",
        help="set the thresholds in a configuration (YAML, TOML, JSON)",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="only show that change")


def question(options: argparse.Namespace, usual: Question | None = None) -> Question:
    """Read what is to be decided.

    :param usual: what holds where an option was not given.
    """
    usual = usual or Question()
    return Question(
        usual.regime if options.regime is None else Regime(options.regime),
        usual.margin if options.margin is None else options.margin,
        usual.reference if options.reference is None else options.reference,
        tuple(sorted({size for each in options.window for size in each})) or usual.windows,
        tuple(map(Direction, dict.fromkeys(options.direction))) or usual.directions,
    )


def read(options: argparse.Namespace) -> Asked:
    """Read what a parser with these options has found.

    :raises UsageError: where it can't be meant.
    """
    if options.dry_run and not options.update_config:
        raise UsageError("--dry-run is about a configuration; name one with --update-config=FILE")
    found = _sweep(options)
    return Asked(
        sweep=found,
        path=options.sweep,
        changes=tuple(options.changes),
        question=question(options, Question(margin=found.margin)),
        repetitions=options.repetitions or found.repetitions,
        adaptive=options.adaptive,
        out=options.out,
        update=options.update_config,
        dry=options.dry_run,
        history=options.history,
        away=options.away,
    )


def _sweep(options: argparse.Namespace) -> Sweep:
    found = Sweep()
    if options.sweep_json:
        try:
            found = sweep.from_plain(json.loads(options.sweep_json))
        except ValueError as error:
            raise UsageError(f"--sweep-json is broken: {error}") from error
    elif options.sweep:
        found = sweep.read(Path(options.sweep))
    return sweep.changed(found, options.changes)


def words(asked: Asked, out: str, *, near: bool = False) -> list[str]:
    """Write it as a command line for somewhere else.

    :param out: the folder in place of the one that was asked for.
    :param near: whether that is on this host, where the sweep's file is.
    """
    of = asked.question
    found = [f"--margin={of.margin!r}", f"--regime={of.regime}", f"--reference={of.reference}"]
    found += [f"--window={window}" for window in of.windows]
    found += [f"--direction={direction}" for direction in of.directions]
    if near:
        found += [f"--sweep={asked.path}"] if asked.path else []
        found += [f"--set={change}" for change in asked.changes]
        found += [f"--history={asked.history}"] if asked.history else []
    else:
        found += [f"--sweep-json={json.dumps(asked.sweep.to_plain())}", "--away"]
    found += [f"--repetitions={asked.repetitions}"]
    found += ["--adaptive"] if asked.adaptive else []
    return [*found, "--out", out]


def _margin(text: str) -> float:
    try:
        margin = float(text)
    except ValueError:
        margin = math.nan
    if not (math.isfinite(margin) and margin > 0):
        raise argparse.ArgumentTypeError(f"invalid margin {text!r}; write 1.2 for 20 % faster")
    return margin


def _windows(text: str) -> list[int]:
    parts = text.split(",")
    if not all(re.fullmatch(r" *[0-9]{1,9} *", part) and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"invalid windows {text!r}; write tokens, such as 64,128")
    return list(map(int, parts))


def _repetitions(text: str) -> int:
    if not re.fullmatch("[0-9]{1,4}", text) or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"invalid number {text!r}; write 1 to {MOST}")
    return int(text)
