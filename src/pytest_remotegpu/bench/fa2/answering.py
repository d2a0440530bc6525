"""What becomes of a document: report, pictures and lines for people, and a configuration changed.

Knows files and values; what is to be shown it hands to whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.bench import configs, history, trends, whole
from pytest_remotegpu.bench.fa2 import (
    compare,
    document,
    judging,
    past,
    pictures,
    regressions,
    report,
    showing,
)
from pytest_remotegpu.bench.fa2.document import Document
from pytest_remotegpu.bench.fa2.judging import Judgement, Question
from pytest_remotegpu.bench.fa2.measured import Measured
from pytest_remotegpu.bench.fa2.rows import Parity
from pytest_remotegpu.bench.thresholds import NEVER
from pytest_remotegpu.errors import UsageError

__all__ = ["Update", "beside", "commit", "judged", "past_lines", "prepare", "regressed", "settle"]

PICTURE: Final = "maps.png"
IGNORE: Final = ".gitignore"
FINE, NOTHING_KNOWN = 0, 5
Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Update:
    """A configuration that is to get the thresholds.

    :ivar path: empty for none. :ivar dry: whether the change is only shown.
    """

    path: str = ""
    dry: bool = False

    def look(self) -> None:
        """See whether it can be changed, before anything is measured.

        :raises UsageError: where it can't.
        """
        if self.path:
            configs.plan(Path(self.path), dict.fromkeys(configs.KEYS, NEVER))

    def make(self, judgement: Judgement, say: Say) -> None:
        """Change it, or show what would be changed; what has no answer stays as it is.

        :raises UsageError: where it can't be changed.
        """
        if not self.path:
            return
        if judgement.trouble:
            say(f"{self.path} stays as it is: {judgement.trouble}")
            return
        found = {key: judgement.number(key) for key in configs.KEYS}
        for key, value in found.items():
            if value is None:
                say(f"runtime.{key} in {self.path} stays as it is: there is no data")
        values = {key: value for key, value in found.items() if value is not None}
        change = configs.plan(Path(self.path), values)
        if not change.diff:
            say(f"{self.path} stays as it is: it has these values")
            return
        say(change.diff.rstrip("\n"))
        if self.dry:
            say(f"{self.path} was not changed: --dry-run")
            return
        backup = change.write()
        say(f"{self.path} was changed; what it was before is in {backup}")


def prepare(folder: Path, default: str) -> None:
    """Make the folder, and take away what an earlier run has left there.

    :param default: a folder of this name is kept out of git.
    :raises UsageError: where nothing can be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if folder.name == default:
            whole.put(folder / IGNORE, b"*\n")
        for name in (document.NAME, report.NAME, PICTURE):
            whole.put(folder / name, b"")  # so that it is known whether it can be written
            (folder / name).unlink()
    except OSError as error:
        raise UsageError(
            f"--out={folder} can't be written: {error.strerror or error}",
            fix="name a folder that can be written",
        ) from error


def settle(
    folder: Path,
    question: Question,
    say: Say,
    *,
    update: Update,
    more: Mapping[str, Any] | None = None,
    past_file: str = "",
) -> int:
    """Judge the document in a folder, and put beside it what it says; change a configuration.

    :param more: what only this side knows: ``cost`` of the run, ``commit`` of the files.
    :param past_file: the history that gets the results, too; empty for none.
    :return: the exit status.
    :raises UsageError: where it can't be read, or the configuration not be changed.
    """
    path = folder / document.NAME
    found = document.read(path)
    found = replace(found, measured=_with(found.measured, more or {}))
    document.write(path, found.measured, question)
    status = _answer(found, question, say, folder=folder, update=update)
    if past_file:
        say(_remember(Path(past_file), found.measured))
    return status


def _with(measured: Measured, more: Mapping[str, Any]) -> Measured:
    """Add what only this side knows."""
    known = measured.environment
    commit = known.get("commit") or more.get("commit")
    environment = {**known, "commit": commit} if commit else known
    return replace(measured, cost=more.get("cost") or measured.cost, environment=environment)


def commit(folder: Path, environ: Mapping[str, str]) -> str:
    """Name the commit of a folder's files, with ``-dirty`` where they are not as they are there."""
    found = history.commit_of(folder, environ)
    return f"{found.id}-dirty" if found.id and found.changed else found.id


def _remember(path: Path, measured: Measured) -> str:
    if not measured.device.cuda_available or not measured.complete:
        why = "no card was used" if measured.complete else "the sweep has not come to its end"
        return f"nothing was added to {path}: {why}"
    return f"{past.add(path, measured)} lines were added to {path}"


def past_lines(path: Path, only: str, say: Say) -> int:
    """Show a history.

    :raises UsageError: where it can't be read.
    """
    try:
        entries, bad = history.read(path)
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror or error}") from error
    for line in (*trends.trends(entries, only=only), *bad):
        say(line)
    return FINE if entries else NOTHING_KNOWN


def _answer(
    found: Document, question: Question, say: Say, *, folder: Path | None, update: Update
) -> int:
    judgement = judging.judge(found.measured, question)
    for line in (*showing.maps(found.measured, judgement), ""):
        say(line)
    for line in showing.decided(found.measured, judgement):
        say(line)
    for text in found.unread:
        say(f"{found.name}: {text}")
    if folder is not None:
        for line in _written(found, question, folder):
            say(line)
    update.make(judgement, say)
    return judgement.status


def _written(found: Document, question: Question, folder: Path) -> list[str]:
    """Write report and picture; say where they are."""
    picture = pictures.draw(found.measured, question)
    if picture is not None:
        whole.put(folder / PICTURE, picture)
    name = PICTURE if picture is not None else ""
    text = report.markdown(found.measured, question, unread=found.unread, picture=name)
    whole.put(folder / report.NAME, text.encode(errors="backslashreplace"))
    lines = [f"report: {folder / report.NAME}"]
    if picture is not None:
        lines.append(f"picture: {folder / PICTURE}")
    elif not pictures.available():
        lines.append(pictures.MISSING)
    return lines


# documents that are there already


def judged(
    path: Path,
    asked: Callable[[Question | None], Question],
    say: Say,
    *,
    out: str = "",
    update: Update,
) -> int:
    """Judge a document or a text of lines anew.

    :param asked: gives the question; gets the one that the document answers, where it says it.
    :param out: the folder for document and report; empty for neither.
    :raises UsageError: where it can't be read or written.
    """
    update.look()
    found = document.read(path)
    question = asked(found.question)
    folder = Path(out) if out else None
    if folder is not None:
        kept = folder / document.NAME
        if not (kept.exists() and kept.samefile(path)):
            prepare(folder, "")
        document.write(folder / document.NAME, found.measured, question)
    return _answer(found, question, say, folder=folder, update=update)


def beside(paths: Sequence[Path], question: Question, say: Say) -> int:
    """Show documents side by side.

    :raises UsageError: where one can't be read, or there is only one.
    """
    if len(paths) < 2:  # noqa: PLR2004 -- to compare needs two
        raise UsageError("there is nothing to compare: give two files or more")
    for line in compare.compare([document.read(path) for path in paths], question):
        say(line)
    return FINE


def regressed(
    baseline: Path, new: Path, asked: Callable[[Question | None], Question], band: float, say: Say
) -> int:
    """Compare a document with its baseline; the first run makes that.

    :return: 0 where nothing has become slower, 1 where a row has, 5 where nothing was compared.
    :raises UsageError: where one can't be read, or the baseline not be made.
    """
    found = document.read(new)
    parity, why = found.measured.parity()
    if not baseline.exists():
        if parity is not Parity.PASSED or not found.measured.complete:
            say(f"{new} makes no baseline: {why or 'the sweep has not come to its end'}")
            return 1 if parity is Parity.FAILED else NOTHING_KNOWN
        try:
            baseline.parent.mkdir(parents=True, exist_ok=True)
            whole.put(baseline, new.read_bytes())
        except OSError as error:
            raise UsageError(f"{baseline} can't be written: {error.strerror or error}") from error
        say(f"{baseline} is new: it is the baseline from now on, and nothing was compared")
        return FINE
    before = document.read(baseline)
    question = asked(found.question)
    comparison = regressions.against(before.measured, found.measured, question, band=band)
    for line in regressions.lines(comparison):
        say(line)
    for each in (before, found):
        for text in each.unread:
            say(f"{each.name}: {text}")
    return comparison.status
