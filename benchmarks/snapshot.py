"""Measure the snapshot beside git and a gzipped tar: ``benchmarks/snapshot.py [--quick]``.

In a git checkout of generated sources, one file is edited, and the two take turns: ``git status``,
and this project from taking the snapshot to the moment at which the far side has the content, and
then has it in its tree. For the first upload they are ``tarfile`` with gzip level 6, and this
project from listing the files to the compressed messages. Both sides run in this one process, one
after the other, without a network. What is printed are ratios within a round; slowness fails
nothing, a file that is not there does.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import machine
import table
from bar import Bar

from pytest_remotegpu import trees
from pytest_remotegpu.protocol import events, frames
from pytest_remotegpu.snapshot import Rules, Snapshot, take
from pytest_remotegpu.worker.source import Source

RULES: Final = Rules((), (), 2**40)
SIZES: Final = (2300, 20000)
QUICK: Final = (2300,)
MUST: Final = {"edit": 2.0, "first": 0.3}
AIM: Final = {"edit": 1.3, "first": 0.2}
GIT: Final = ("git", "-c", "user.name=b", "-c", "user.email=b@localhost")
SETTLE: Final = 0.1
"""Seconds between two edits: nobody edits within a tick of the clock of the last run."""


@dataclass
class Seconds:
    """The rounds of one size, in seconds.

    :ivar there: until the far side has what was edited; :ivar laid: until the tree is there too.
    """

    status: list[float]
    there: list[float]
    laid: list[float]
    archive: list[float]
    first: list[float]


class Sent:
    """What travels, encoded."""

    def __init__(self) -> None:
        self.data: list[bytes] = []

    def take(self, message: Any) -> None:
        """Take in one message."""
        self.data.append(frames.encode_message(message))


class Far:
    """The far side's part, as a worker does it when an order comes."""

    def __init__(self, home: Path, scratch: Path) -> None:
        self._home, self._scratch = home, scratch

    def receive(self, taken: Snapshot) -> tuple[float, float]:
        """Announce a tree, send what is lacking; give when the content and when the tree is there.

        :raises SystemExit: where it never is.
        """
        tree = trees.announce(taken, "benchmark", "project")
        source = Source(self._home, str(self._scratch), tree)
        asked: list[events.Event] = []
        built = source.go_on(asked.append)
        there = time.perf_counter()
        while not built and asked:
            need: Any = asked.pop()
            cutter = frames.Frames(frames.MAX_OUTBOUND)
            sent = Sent()
            trees.supply(taken, need.digests, sent.take, print)
            for body in cutter.feed(b"".join(sent.data)):
                source.put(frames.read_message(body))
            there = time.perf_counter()
            built = source.go_on(asked.append)
        laid = time.perf_counter()
        if (
            not built
            or source.root.joinpath(EDITED).read_bytes() != (taken.root / EDITED).read_bytes()
        ):
            raise SystemExit("the far side has not what was sent")
        source.close()
        return there, laid


EDITED: Final = "part0/abc.py"


def write(root: Path, files: int) -> None:
    """Fill a folder with sources, those of Python's library again and again, and commit them."""
    library = Path(statistics.__file__).parent
    sources = [path for path in sorted(library.rglob("*.py")) if "site-packages" not in path.parts]
    for number in range(files):
        source = sources[number % len(sources)]
        part = number // len(sources)
        target = root / f"part{part}" / source.relative_to(library)
        target.parent.mkdir(parents=True, exist_ok=True)
        content = source.read_bytes()
        target.write_bytes(content if not part else b"# %d\n" % part + content[: len(content) // 4])
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "sources")):
        subprocess.run([*GIT, *words], cwd=root, check=True)


@contextmanager
def timed(into: list[float]) -> Iterator[None]:
    """Note how long the block takes."""
    start = time.perf_counter()
    yield
    into.append(time.perf_counter() - start)


def measure(root: Path, rounds: int, patience: machine.Patience) -> Seconds:
    """Take turns, after a round that only warms caches up."""
    seen = Seconds([], [], [], [], [])
    with tempfile.TemporaryDirectory(prefix="benchmark-far-") as name:
        far = Far(Path(name, "home"), Path(name, "scratch"))
        memory = Path(name, "memory")
        for number in range(-1, rounds):
            patience.wait()
            _edit(root, number)
            with timed(seen.status):
                subprocess.run([*GIT, "status"], cwd=root, check=True, stdout=subprocess.DEVNULL)
            start = time.perf_counter()
            taken = take(root, RULES, memory)
            there, laid = far.receive(taken)
            seen.there.append(there - start)
            seen.laid.append(laid - start)
            taken.remember()
        for _ in range(max(rounds // 3, 1)):
            patience.wait()
            with timed(seen.archive):
                _archive(root, Path(name, "archive"))
            with timed(seen.first):
                _first(root, Path(name, "messages"))
    for column in (seen.status, seen.there, seen.laid):
        del column[0]
    return seen


def _edit(root: Path, number: int) -> None:
    with (root / EDITED).open("a", encoding="utf-8") as file:
        file.write(f"# edit {number}\n")
    time.sleep(SETTLE)


def _archive(root: Path, to: Path) -> None:
    listed = subprocess.run([*GIT, "ls-files", "-z"], cwd=root, check=True, capture_output=True)
    with tarfile.open(to, "w:gz", compresslevel=6) as archive:
        for path in listed.stdout.decode().split("\0"):
            if path:
                archive.add(root / path, path)


def _first(root: Path, to: Path) -> None:
    taken = take(root, RULES)
    digests = [entry.digest for entry in taken.entries]
    sent = Sent()
    trees.supply(taken, digests, sent.take, print)
    to.write_bytes(b"".join(sent.data))


def rows(files: int, seen: Seconds) -> Iterator[tuple[str, ...]]:
    """Write the ratios of one size."""
    pairs = (
        ("one edit, far side has it / git status", seen.there, seen.status, "edit"),
        ("one edit, in the far tree / git status", seen.laid, seen.status, ""),
        ("first upload / tarfile and gzip -6", seen.first, seen.archive, "first"),
    )
    for what, ours, others, kind in pairs:
        ratio = table.spread(_each(ours, others))
        took = f"{statistics.median(ours) * 1e3:.0f} / {statistics.median(others) * 1e3:.0f} ms"
        yield (str(files), what, ratio, str(MUST.get(kind, "")), str(AIM.get(kind, "")), took)


def bars(quick: bool) -> list[Bar]:  # noqa: FBT001 -- as all that give bars are told
    """Measure the bars of a snapshot, in a checkout of 2300 files and, unless quick, of 20000."""
    patience = machine.Patience(10.0, 0.0 if quick else 300.0)
    found = []
    for files in QUICK if quick else SIZES:
        with tempfile.TemporaryDirectory(prefix="benchmark-checkout-") as name:
            write(Path(name), files)
            seen = measure(Path(name), 3 if quick else 9, patience)
        there = _each(seen.there, seen.status)
        first = _each(seen.first, seen.archive)
        edits, upload = f"one edit of {files} files", f"first upload of {files} files"
        found += [
            Bar("T4", f"{edits}, far side has it / git status", there, MUST["edit"], AIM["edit"]),
            Bar("T4b", f"{upload} / tarfile and gzip -6", first, MUST["first"], AIM["first"]),
        ]
    return found


def _each(ours: list[float], others: list[float]) -> tuple[float, ...]:
    return tuple(one / other for one, other in zip(ours, others, strict=True))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one size, few rounds, no waiting")
    parser.add_argument("--rounds", type=int, help="edits of each size, instead of 9")
    given = parser.parse_args()
    rounds = given.rounds or (3 if given.quick else 9)
    patience = machine.Patience(10.0, 0.0 if given.quick else 300.0)
    found: list[tuple[str, ...]] = []
    for files in QUICK if given.quick else SIZES:
        with tempfile.TemporaryDirectory(prefix="benchmark-checkout-") as name:
            write(Path(name), files)
            found += rows(files, measure(Path(name), rounds, patience))
        print(f"{files} files: done", file=sys.stderr, flush=True)
    head = ("files", "what / beside what", "ratio", "at most", "aim", "medians")
    print("\n\n".join([machine.describe(), machine.versions(), table.text(head, found)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
