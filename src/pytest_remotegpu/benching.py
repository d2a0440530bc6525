"""``remotegpu bench fa2 --remote=SPEC``: a sweep as a command on a far side, or on several.

It is ``remotegpu run`` of ``python -m pytest_remotegpu.bench.fa2``, whose document comes back and
is judged here. Several far sides are processes of their own, side by side. What can be seen to be
wrong from here is said before anything is rented.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_remotegpu import backends, command, cost, sidebyside
from pytest_remotegpu.backends.base import Checks, Offers, Prices, Site
from pytest_remotegpu.bench.fa2 import (
    answering,
    asking,
    commands,
    compare,
    document,
    report,
    showing,
)
from pytest_remotegpu.bench.fa2.answering import Update
from pytest_remotegpu.commanding import FAILED, INTERRUPTED, Streams, arguments, put
from pytest_remotegpu.config import split_spec
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.outputs import folder_name
from pytest_remotegpu.summary import RunSummary

__all__ = ["run"]

MODULE: Final = "pytest_remotegpu.bench.fa2"
AMPERE: Final = 8.0
"""The compute capability that FlashAttention-2 needs."""
MEASURED: Final = (0, 1, 5)
"""Exit statuses of a sweep that has come to its end."""


def run(
    options: argparse.Namespace, told: Mapping[str, Sequence[str]], environ: Mapping[str, str]
) -> int:
    """Measure there, and bring the document here.

    :param told: by far side, pytest's options, such as ``--remote=SPEC``.
    :return: the exit status of the judgement, or one of ``remotegpu run``.
    :raises UsageError: for what can't be meant; nothing was rented then.
    """
    sidebyside.follow()
    asked = asking.read(options)
    for spec in told:
        look(spec)
    if len(options.remote) > 1:
        return _several(options, asked, told)
    update = commands.ready(asked)
    ((_, session),) = told.items()
    return _one(asked, session, environ, update)


# before anything is rented


def look(spec: str) -> None:
    """See that a far side has cards that FlashAttention-2 runs on, as far as it is known from here.

    :raises UsageError: where one of them is too old.
    """
    backend, rest = _backend(spec)
    if not isinstance(backend, Checks):
        return
    backend.check(Shape(1, min_capability=AMPERE))
    if rest and isinstance(backend, Offers):
        fitting = backend.offers(Shape(1, min_capability=AMPERE))
        old = [name for name in backend.offers(Shape(1)) if name not in fitting]
        if old:
            raise UsageError(
                f"--remote={spec} names {' and '.join(old)}, whose capability is less than the "
                f"{AMPERE:.1f} that FlashAttention-2 needs",
                fix=f"leave it out: --remote={spec.partition(':')[0]}:{','.join(fitting)}",
            )


def _backend(spec: str) -> tuple[Any, str]:
    name, rest = split_spec(spec)
    site = Site(executable=sys.executable, platform=sys.platform, root=str(Path.cwd()))
    return backends.find(name, rest, site), rest


def _price(spec: str) -> float:
    """Give what an hour costs, in USD; more than anything where nobody knows."""
    backend, _ = _backend(spec)
    found = backend.price(Shape(1, min_capability=AMPERE)) if isinstance(backend, Prices) else None
    known = None if found is None else found.usd_per_hour
    return float("inf") if known is None else known


# one far side


def _one(
    asked: asking.Asked, session: Sequence[str], environ: Mapping[str, str], update: Update
) -> int:
    folder = Path(asked.out)
    words = [command.PYTHON, "-m", MODULE, *asking.words(asked, command.KEPT)]
    streams = _Sweep(folder)
    try:
        with streams.aside():
            asks = command.option(words, 1, AMPERE)
            told = [*session, f"--remote-artifacts={folder}"]
            status = int(pytest.main(arguments(asks, told, environ), plugins=[streams]))
    finally:
        streams.bring()
        streams.close()
    ended = streams.status(status)
    if status == pytest.ExitCode.INTERRUPTED:
        ended = INTERRUPTED  # also where the sweep had to be killed
    if not streams.came:
        put(2, b"no document has come back\n")
        return ended or FAILED
    more = {"cost": streams.cost, "commit": streams.commit}
    judged = answering.settle(
        folder, asked.question, _say, update=update, more=more, past_file=asked.history
    )
    return judged if ended in MEASURED else ended


def _say(line: str) -> None:
    put(1, f"{showing.clean(line)}\n".encode(errors="backslashreplace"))


class _Sweep(Streams):
    """Shows what the sweep writes, puts its document where it belongs, and keeps what it has cost.

    :param folder: of the document; what comes back is in a folder below it at first.
    :ivar came: whether it has come. :ivar cost: as plain data; empty where nobody knows.
    :ivar commit: that was run.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.came = False
        self.cost: dict[str, Any] = {}
        self.commit = ""

    def bring(self) -> None:
        """Move what has come."""
        coming = self._folder / folder_name(f"::{command.NAME}")
        for path in sorted(coming.glob("*")):
            with contextlib.suppress(OSError):
                path.replace(self._folder / path.name)
                self.came = self.came or path.name == document.NAME
        with contextlib.suppress(OSError):
            coming.rmdir()

    def pytest_remotegpu_summary(self, summary: RunSummary) -> None:
        """Keep the cost, and name the files by the places that they have in the end."""
        self.bring()
        summary.artifact_names = []
        summary.artifacts = 0
        self.commit = summary.commit
        total = cost.total(summary.workers)
        if total is not None and summary.rents:
            gpus = sorted({worker.gpu for worker in summary.workers if worker.gpu})
            seconds = sum(worker.seconds for worker in summary.workers)
            self.cost = {
                "currency": "USD",
                "total": total,
                "at_most": summary.worst,
                "gpu_seconds": seconds,
                "where": ", ".join([summary.where, *gpus]),
            }


# several


def _several(
    options: argparse.Namespace, asked: asking.Asked, told: Mapping[str, Sequence[str]]
) -> int:
    """Measure on each far side in a process of its own, the cheapest first; compare in the end."""
    if len(told) < len(options.remote):
        twice = next(spec for spec in told if options.remote.count(spec) > 1)
        raise UsageError(f"--remote={twice} is given twice; --repetitions=2 measures again")
    for name, value in (("--update-config", asked.update), ("--remote-json", options.remote_json)):
        if value:
            raise UsageError(
                f"{name} is for one far side, and {len(told)} are given",
                fix="measure on all, then: remotegpu bench judge FILE --update-config=..."
                if asked.update
                else "leave it out, or measure on one after the other",
            )
    commands.ready(asked)
    specs = sorted(told, key=_price)
    folders = {spec: Path(asked.out, sidebyside.label(spec)) for spec in specs}
    for folder in folders.values():
        answering.prepare(folder, "")
    calls = {
        spec: [
            *(sys.executable, "-m", "pytest_remotegpu", "bench", "fa2"),
            *told[spec],
            *asking.words(asked, str(folder), near=True),
        ]
        for spec, folder in folders.items()
    }
    statuses = sidebyside.run(calls)
    return _told(asked, folders, statuses)


def _told(asked: asking.Asked, folders: Mapping[str, Path], statuses: Mapping[str, int]) -> int:
    """Show what came of each, and those that have a document beside each other."""
    found = []
    rows = [("where", "exit status", "cost", "document")]
    for spec, folder in folders.items():
        path, price, shown = folder / document.NAME, "-", "none has come back"
        if path.exists():
            try:
                one = dataclasses.replace(document.read(path), name=spec)
            except UsageError as error:
                shown = str(error)
            else:
                found.append(one)
                shown = str(path)
                price = report.cost(one.measured.cost) if one.measured.cost else price
        rows.append((spec, str(statuses[spec]), price, shown))
    for line in showing.table(rows):
        _say(line)
    if len(found) > 1:
        _say("")
        for line in compare.compare(found, asked.question):
            _say(line)
    return sidebyside.worst(statuses.values())
