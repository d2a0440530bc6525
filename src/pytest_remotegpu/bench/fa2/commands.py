"""The commands of ``remotegpu bench``: their options, and what each does on this host.

Knows the command line; what is to be shown it hands to whoever asks.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_remotegpu.bench.fa2 import answering, asking, document, regressions
from pytest_remotegpu.bench.fa2.answering import Say, Update
from pytest_remotegpu.bench.fa2.judging import Question
from pytest_remotegpu.errors import UsageError

__all__ = ["add", "here", "ready"]


def add(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the commands.

    :return: the parser of the one that measures.
    """
    commands = parser.add_subparsers(metavar="WHAT", required=True)

    def command(name: str, text: str, answer: Any = None) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(answer=answer, sweeps=answer is None)
        return made

    sweeping = command("fa2", "time FlashAttention-2 beside others, and find its thresholds")
    asking.add(sweeping)
    judging = command("judge", "find thresholds in a document, or a text, that is there", judge)
    judging.add_argument("file", type=Path, metavar="FILE")
    asking.add_question(judging)
    judging.add_argument("--out", default="", metavar="FOLDER", help="for document and report")
    asking.add_update(judging)
    comparing = command("compare", "show documents side by side: cards, commits", compare)
    comparing.add_argument("files", nargs="+", type=Path, metavar="FILE")
    asking.add_question(comparing)
    regressing = command("regressions", "look for rows that have become slower", regress)
    regressing.add_argument("baseline", type=Path, help="made of NEW where it is not there yet")
    regressing.add_argument("new", type=Path)
    asking.add_question(regressing)
    regressing.add_argument(
        "--noise",
        type=_share,
        default=regressions.BAND,
        metavar="SHARE",
        help=f"by which times differ without a reason ({regressions.BAND:g})",
    )
    looking = command("history", "show how times have come along", past)
    looking.add_argument("file", type=Path, metavar="FILE")
    looking.add_argument(
        "--only", default="", metavar="TEXT", help="benchmarks with it in the name"
    )
    return sweeping


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not (math.isfinite(share) and share >= 0):
        raise argparse.ArgumentTypeError(f"invalid share {text!r}; write 0.03 for 3 %")
    return share


def _question(options: argparse.Namespace) -> Callable[[Question | None], Question]:
    """Let options stand above what a document answered."""
    return lambda usual: asking.question(options, usual)


def judge(options: argparse.Namespace, say: Say) -> int:
    """Judge a document anew."""
    if options.dry_run and not options.update_config:
        raise UsageError("--dry-run is about a configuration; name one with --update-config=FILE")
    update = Update(options.update_config, options.dry_run)
    return answering.judged(options.file, _question(options), say, out=options.out, update=update)


def compare(options: argparse.Namespace, say: Say) -> int:
    """Show documents side by side."""
    return answering.beside(options.files, asking.question(options), say)


def regress(options: argparse.Namespace, say: Say) -> int:
    """Compare a document with its baseline."""
    files = options.baseline, options.new
    return answering.regressed(*files, _question(options), options.noise, say)


def past(options: argparse.Namespace, say: Say) -> int:
    """Show a history."""
    return answering.past_lines(options.file, options.only, say)


def ready(asked: asking.Asked) -> Update:
    """See that what is asked for can be written, before anything is measured.

    :raises UsageError: where it can't.
    """
    update = Update(asked.update, asked.dry)
    update.look()
    if asked.history and not Path(asked.history).resolve().parent.is_dir():
        raise UsageError(f"--history={asked.history} can't be written: there is no such folder")
    answering.prepare(Path(asked.out), asking.FOLDER)
    return update


def here(options: argparse.Namespace, say: Say) -> int:
    """Make the sweep on this host.

    :raises UsageError: where it can't be meant.
    """
    from pytest_remotegpu.bench.fa2 import __main__ as sweep  # noqa: PLC0415 -- needs torch

    asked = asking.read(options)
    update = ready(asked)
    status = sweep.main(asking.words(asked, asked.out))
    if not Path(asked.out, document.NAME).exists():
        return status
    more = {"commit": answering.commit(Path.cwd(), os.environ)}
    judged = answering.settle(
        Path(asked.out), asked.question, say, update=update, more=more, past_file=asked.history
    )
    return judged if status in (0, 1, 5) else status
