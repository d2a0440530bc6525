"""A run as data, for programs: one document of plain values, and the file that it is written to.

Knows the summary and what is said of single tests; must not know pytest or who asks.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu import cost
from pytest_remotegpu.cost import WorkerCost
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.outputs import folder_name
from pytest_remotegpu.summary import RunSummary, ShapeSummary

__all__ = ["FORMAT", "VERSION", "Entry", "document", "place", "write"]

FORMAT: Final = "pytest-remotegpu/run"
VERSION: Final = 1
"""Grows where a key goes, or comes to mean something else; not where one is added."""
BYTES: Final = ("remotegpu_peak_allocated", "remotegpu_peak_reserved", "remotegpu_leaked")
"""Properties of a test that are a number of bytes."""


@dataclass
class Entry:
    """What the reports of one test have said.

    :ivar outcome: the worst of them so far, in pytest's words; ``not run`` where there was none.
    :ivar phases: for each phase its outcome and seconds. :ivar reruns: how often it was begun anew.
    :ivar properties: its user properties; those of a test may be of any kind.
    :ivar message: why it failed.
    :ivar benchmarks: what ``gpu_benchmark`` came to, as data.
    :ivar charged: ``seconds``, ``gpus`` and ``usd``, where it ran on a worker.
    """

    id: str
    outcome: str = "not run"
    phases: dict[str, tuple[str, float]] = field(default_factory=dict)
    reruns: int = 0
    properties: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    charged: Mapping[str, Any] = field(default_factory=dict)
    benchmarks: list[Any] = field(default_factory=list)

    def plain(self, artifacts: list[str]) -> dict[str, Any]:
        """Give it as data.

        :param artifacts: the paths of its files below the folder for them.
        """
        said = self.properties
        shipped = {"remotegpu_backend", "remotegpu_verdict"} & said.keys()
        seconds = self.charged.get("seconds")
        gpus = self.charged.get("gpus")
        return {
            "id": self.id,
            "outcome": self.outcome,
            "where": ("far" if shipped else "here") if self.phases else None,
            "seconds": _finite(sum(each for _, each in self.phases.values())),
            "phases": {
                name: {"outcome": outcome, "seconds": _finite(each)}
                for name, (outcome, each) in self.phases.items()
            },
            "reruns": self.reruns,
            "message": self.message or None,
            "verdict": _text(said.get("remotegpu_verdict")),
            "worker": _text(said.get("remotegpu_worker")),
            "gpu": _text(said.get("remotegpu_gpu")),
            "gpus": gpus,
            "gpu_seconds": None if seconds is None else seconds * (gpus or 0),
            "cost_usd": self.charged.get("usd"),
            **{f"{key.removeprefix('remotegpu_')}_bytes": _count(said.get(key)) for key in BYTES},
            "artifacts": artifacts,
            "benchmarks": self.benchmarks,
        }


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    return value if type(value) is int else None


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def document(
    summary: RunSummary,
    tests: Iterable[Entry],
    *,
    session: Mapping[str, Any],
    backend: str | None,
    limits: Mapping[str, float | None],
) -> dict[str, Any]:
    """Make the document of a run, so far or at its end.

    :param session: what there is to say of pytest's session. :param backend: as in ``--remote=``.
    :param limits: those of the run, by name.
    """
    tests = list(tests)
    files: dict[str, list[str]] = {}
    for name in summary.artifact_names:
        files.setdefault(name.partition("/")[0], []).append(name)
    shapes = sorted([*summary.shapes.values(), *_beside(summary)], key=lambda part: part.shape)
    phases = _phases(summary)
    return {
        "format": FORMAT,
        "version": VERSION,
        "session": dict(session),
        "backend": None if backend is None else _backend(backend, summary),
        "limits": dict(limits),
        "outcomes": dict(sorted(Counter(test.outcome for test in tests).items())),
        "cost": _cost(summary),
        "shapes": [_shape(part, summary.workers) for part in shapes],
        "workers": [
            {**_worker(worker), "phases": phases.pop(worker.name, [])} for worker in summary.workers
        ],
        "phases": phases,
        "tests": [test.plain(files.get(folder_name(test.id), [])) for test in tests],
        "artifacts_dir": summary.artifacts_dir or None,
        "left_running": _left(summary),
        "sent": {"files": summary.sent_files, "bytes": summary.sent_bytes},
        "causes": list(summary.causes),
        "notes": summary.all_notes(),
        **summary.more,
    }


def _beside(summary: RunSummary) -> list[ShapeSummary]:
    """Give the shapes on which nothing has run: their workers have collected."""
    counts = Counter(worker.shape for worker in summary.workers)
    return [ShapeSummary(shape, n) for shape, n in counts.items() if shape not in summary.shapes]


def _left(summary: RunSummary) -> list[dict[str, Any]] | None:
    """List the machines that are still there; ``None`` where there is nothing to know."""
    left = summary.still_there()
    if left is None or not summary.workers:
        return None
    return [
        {
            "name": of or None,
            "machine": machine,
            "until": until if math.isfinite(until) else None,
            "confirmed": sure,
        }
        for of, machine, until, sure in left
    ]


def _backend(name: str, summary: RunSummary) -> dict[str, Any]:
    return {
        "name": name,
        "where": summary.where or None,
        "gpu_used": summary.real,
        "cards": list(summary.cards),
        "pages": list(summary.pages),
    }


def _cost(summary: RunSummary) -> dict[str, Any] | None:
    """Add up what is known; ``None`` where nothing is."""
    total = cost.total(summary.workers)
    if total is None:
        return None
    priced = [(each, each.rate) for each in summary.workers if each.rate is not None]
    return {
        "currency": "USD",
        "total": total,
        "tests": sum(rate.usd(each.busy) for each, rate in priced),
        "start": sum(rate.usd(each.start) for each, rate in priced),
        "idle": sum(rate.usd(each.idle) for each, rate in priced),
        "at_most": summary.worst,
        "workers_without_price": len(summary.workers) - len(priced),
    }


def _shape(part: ShapeSummary, workers: Iterable[WorkerCost]) -> dict[str, Any]:
    own = [worker for worker in workers if worker.shape == part.shape]
    peak, nodeid = part.peak
    return {
        "shape": str(part.shape),
        "gpus": part.shape.count,
        "types": list(part.shape.type),
        "workers": part.workers,
        "tests": part.tests,
        "seconds": _finite(part.seconds),
        "gpu_seconds": sum(worker.seconds for worker in own) * part.shape.count,
        "cost_usd": cost.total(own),
        "peak_allocated_bytes": peak or None,
        "peak_test": nodeid or None,
    }


def _phases(summary: RunSummary) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for it in sorted(summary.phases, key=lambda it: it.start):
        plain = {"name": it.name, "start": _finite(it.start), "seconds": _finite(it.seconds)}
        found.setdefault(it.who, []).append(plain)
    return found


def _worker(worker: WorkerCost) -> dict[str, Any]:
    rate = worker.rate
    return {
        "name": worker.name,
        "shape": str(worker.shape),
        "gpus": worker.shape.count,
        "gpu": worker.gpu or None,
        "tests": worker.tests,
        "opened": worker.opened,
        "start_seconds": worker.start,
        "busy_seconds": worker.busy,
        "idle_seconds": worker.idle,
        "gpu_seconds": worker.seconds * worker.shape.count,
        "cost_usd": worker.usd,
        "price": None
        if rate is None
        else {
            "usd_per_hour": rate.usd_per_hour,
            "date": rate.date or None,
            "source": rate.source or None,
        },
    }


# ---------------------------------------------------------------- the file


def place(base: Path, given: str, *, makes: bool = True) -> Path:
    """Name the file that is meant, and see that it can be written, before anything runs.

    Makes the folders for it, as pytest does for the file of ``--junit-xml``.

    :param base: where relative paths begin. :param given: what the user wrote.
    :param makes: not where nothing will be written: then no folder is made, nor tried.
    :raises UsageError: where it can't.
    """
    what = f"--remote-json={given!r} can't be written"
    names_folder = given.endswith(tuple(filter(None, (os.sep, os.altsep))))
    try:
        path = Path(base, Path(given).expanduser()).resolve()
        there = os.path.lexists(path)
        if makes and not names_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path.parent):
                pass
    except (OSError, ValueError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{what}: {why}; name a file in a folder that can be written") from None
    if names_folder and not there:
        raise UsageError(f"{what}: that names a folder; name a file, such as {given}run.json")
    if there and not path.is_file():
        raise UsageError(f"{what}: {str(path)!r} is there and is no file; name another")
    return path


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Write a document in one step: whoever reads finds the old one or the new one, and it whole.

    :raises OSError: where that can't be done; then the old one is still there.
    """
    text = json.dumps(data, indent=2, allow_nan=False, default=str)
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text + "\n")
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
