"""The loop of ``--remote-watch``: after each save, what it affects runs again, until Ctrl-C.

Each run is a pytest session in a process of its own, so that it sees each file as it is. This
process imports nothing of the project after its start, runs no test and knows no far side.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pytest

from pytest_remotegpu import affected, environment
from pytest_remotegpu.changes import Project
from pytest_remotegpu.config import Settings
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.imports import Needs, needs_of

__all__ = ["Asked", "Loop", "Result", "command", "first_lines", "loop"]

NOTHING_SELECTED: Final = 5
USAGE: Final = 4
INTERRUPTED: Final = 2
CHANGED, ENDED, BROKEN = "changed", "ended", "broken"
STEP: Final = 100
"""Milliseconds without a further event after which what came before is one save."""
SHOWN: Final = 3
SETTINGS: Final = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
CLASHES: Final = {
    "looponfail": "--looponfail",
    "remote_plan": "--remote-plan",
    "collectonly": "--collect-only",
    "setupplan": "--setup-plan",
    "usepdb": "--pdb",
    "trace": "--trace",
    "remote_rev": "--remote-rev",
}
"""Options that have nothing to run again, or need the terminal that the loop has."""
CAP: Final = "--remote-max-cost"


@dataclass(frozen=True)
class Asked:
    """What the user's command line said.

    :ivar arguments: that of pytest. :ivar argv: this process's own, as in ``sys.orig_argv``.
    :ivar folder: where it was started. :ivar root: the project's.
    :ivar patterns: names of test files. :ivar narrow: whether path arguments can be narrowed.
    :ivar max_cost: USD for the whole loop; 0 for no cap. :ivar left_out: what runs write.
    """

    arguments: Sequence[str]
    argv: Sequence[str]
    folder: Path
    root: Path
    patterns: tuple[str, ...]
    narrow: bool = True
    max_cost: float = 0.0
    left_out: tuple[Path, ...] = ()


@dataclass
class Result:
    """What a run wrote down of itself; nothing where it could not."""

    files: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    seen: list[str] | None = None
    usd: float | None = None
    worst: float | None = None


def command(asked: Asked, folder: Path, left: float | None) -> list[str]:
    """Give the command line of one run.

    :param folder: of the run's own files. :param left: USD that it may cost, where that is limited.
    """
    arguments = [each for each in map(str, asked.arguments) if each != "--remote-watch"]
    if left is not None:
        arguments = [*_without(arguments, CAP), f"{CAP}={max(left, 0.000001):.6f}"]
    script = Path(sys.argv[0])
    is_script = script.name in ("pytest", "py.test") and script.is_file()
    program = [str(script.absolute())] if is_script else ["-m", "pytest"]
    own = ["-p", "pytest_remotegpu.rerun", f"--remotegpu-run={folder}"]
    options = environment.interpreter_options(asked.argv)
    return [sys.executable, *options, *program, *own, *arguments]


def _without(arguments: Iterable[str], option: str) -> list[str]:
    kept: list[str] = []
    skip = False
    for each in arguments:
        if not skip and each != option and not each.startswith(f"{option}="):
            kept.append(each)
        skip = each == option
    return kept


def first_lines(changed: Iterable[PurePosixPath], verb: str = "changed") -> str:
    """Name some files, and how many more there are."""
    names = sorted(map(str, changed))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more} {verb}".rstrip()


class Loop:
    """Runs sessions, and remembers which tests fail.

    :ivar status: the exit status of the last run.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._project = Project(asked.root, asked.left_out)
        self._needs: dict[bytes, Needs | None] = {}
        self._last: dict[PurePosixPath, Needs | None] = {}
        self._known: set[PurePosixPath] = set()
        self._failing: set[str] = set()
        self._made: set[PurePosixPath] = set()
        self._cause: set[PurePosixPath] = set()
        self._spent = 0.0
        self._ended = 0
        self._news: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._stop = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self.status = 0

    def run(self) -> int:
        """Run until Ctrl-C; give the exit status of the whole.

        :raises UsageError: where the library that watches is missing.
        """
        watcher = threading.Thread(target=self._watch, args=[_library()], daemon=True)
        before = _catch(self._end_by_signal)
        try:
            self._project.look()
            self._last = self._read()
            watcher.start()
            self._all()
            if self.status == USAGE:
                return self.status
            while not self._is_spent():
                self._say(f"waiting for changes, Ctrl-C ends{self._left_over()}")
                self._react(self._next_change())
        except KeyboardInterrupt:
            if self._child is not None:
                self._end_child()
        finally:
            self._stop.set()
            _restore(before)
        return self._final()

    # what there is to do

    def _react(self, changed: set[PurePosixPath]) -> None:
        """Run what a change affects: first what has failed, then the rest, if that passes."""
        before, self._last = self._last, self._read()
        here = {path for path in self._known if self._project.has(path)}
        gone, self._known = self._known - here, here
        self._failing = {id for id in self._failing if _file(id) not in gone}
        files = affected.affected_files(
            changed, before, self._last, here | gone, self._asked.patterns
        )
        if not self._asked.narrow or not self._known:
            files = None
        files = None if files is None else files - gone
        self._say(f"{first_lines(changed)}: {self._plan(files)}")
        done: set[str] = set()
        if self._failing:
            passed = self._failing_first()
            if passed is None:
                return
            done = passed
        if files is None:
            self._all(without=done)
        elif files:
            self._session(files=files, without=done)
        if done and self.status == NOTHING_SELECTED:  # all of it has passed just now
            self.status = 0

    def _plan(self, files: set[PurePosixPath] | None) -> str:
        if files == set() and not self._failing:
            return "nothing to run"
        what = "all tests" if files is None else first_lines(files, "")
        first = len(self._failing)
        return f"{first} that failed, then {what}".removesuffix(", then ") if first else what

    def _failing_first(self) -> set[str] | None:
        """Run the tests that failed; give those that pass now, ``None`` where some still fail."""
        wanted = set(self._failing)
        files = {_file(id) for id in wanted}
        narrow = files if self._asked.narrow and files <= self._known else None
        result = self._session(files=narrow, only=wanted)
        if self.status == NOTHING_SELECTED and not result.broken:  # they are there no longer
            self._failing -= wanted
            return set()
        if self.status or self._failing & wanted:
            return None
        return set(result.passed)

    def _all(self, without: Iterable[str] = ()) -> None:
        self._session(without=without)

    def _session(
        self,
        *,
        files: Iterable[PurePosixPath] | None = None,
        only: Iterable[str] | None = None,
        without: Iterable[str] = (),
    ) -> Result:
        """Run one session and take in what came of it."""
        left = self._asked.max_cost - self._spent if self._asked.max_cost else None
        with tempfile.TemporaryDirectory(prefix="remotegpu-watch-") as name:
            folder = Path(name)
            paths = None if files is None else sorted(str(self._asked.root / f) for f in files)
            asked = {
                "files": paths,
                "only": None if only is None else sorted(only),
                "without": sorted(without),
                "failing": sorted(self._failing),
            }
            (folder / "run.json").write_text(json.dumps(asked), "utf-8")
            self.status = self._wait(command(self._asked, folder, left))
            result = _result(folder / "result.json")
        self._spent += result.usd if result.usd is not None else result.worst or 0.0
        self._known |= {PurePosixPath(file) for file in result.files}
        self._failing = {id for id in self._failing if not self._is_fine(id, result)}
        self._failing |= {*result.failed, *result.broken}
        return result

    @staticmethod
    def _is_fine(id: str, result: Result) -> bool:
        """Say whether something that failed no longer does, or is no longer there."""
        if id in result.passed:
            return True
        collected = id.partition("::")[0] in set(result.files) - set(result.broken)
        return collected and ("::" not in id or (result.seen is not None and id not in result.seen))

    def _wait(self, line: list[str]) -> int:
        group: dict[str, Any] = {} if sys.platform == "win32" else {"process_group": 0}
        child = subprocess.Popen(line, cwd=self._asked.folder, stdin=subprocess.DEVNULL, **group)
        self._child = child
        threading.Thread(target=lambda: self._news.put((ENDED, child.wait())), daemon=True).start()
        dirty = False
        while True:
            kind, value = self._get()
            if kind == ENDED:
                break
            dirty = True
        self._child, self._ended = None, time.time_ns()
        if dirty:
            self._news.put((CHANGED, None))
        return int(value)

    def _next_change(self) -> set[PurePosixPath]:
        """Wait for files that are other than at the last look."""
        while True:
            self._get()
            changed = self._project.look() - self._made
            changed -= self._written_by_tests(changed)
            if changed:
                self._cause = changed
                return changed

    def _written_by_tests(self, changed: set[PurePosixPath]) -> set[PurePosixPath]:
        """Find what a run itself has written: it would be followed by another run for ever."""
        data = {path for path in changed if path.suffix != ".py" and path not in self._known}
        made = {path for path in data if self._project.came_by(path, self._ended)}
        made |= {path for path in data & self._cause if self._project.is_older(path, self._ended)}
        made = {path for path in made if path.name not in SETTINGS}
        if made:
            self._made |= made
            self._say(f"{first_lines(made, 'written while tests ran')}: ignored from now on")
        return made

    def _get(self) -> tuple[str, Any]:
        """Wait for news; on Windows Ctrl-C is noticed between two waits only."""
        while True:
            try:
                kind, value = self._news.get(timeout=0.5 if sys.platform == "win32" else None)
            except queue.Empty:
                continue
            if kind == BROKEN:
                raise UsageError(
                    "--remote-watch can't watch the project any longer: "
                    f"{type(value).__name__}: {value}"
                )
            return kind, value

    # who watches

    def _watch(self, library: Any) -> None:
        try:
            noticed = library.watch(
                self._asked.root,
                watch_filter=None,
                step=STEP,
                stop_event=self._stop,
                raise_interrupt=False,
            )
            for _ in noticed:
                self._news.put((CHANGED, 0))
        except Exception as error:  # noqa: BLE001 -- the thread's border: the loop has to know
            self._news.put((BROKEN, error))

    # what is known

    def _read(self) -> dict[PurePosixPath, Needs | None]:
        """Read what each Python file needs, each content once."""
        found: dict[PurePosixPath, Needs | None] = {}
        for path, digest in self._project.sources():
            if digest not in self._needs:
                self._needs[digest] = needs_of(self._project.read(path))
            found[path] = self._needs[digest]
        return found

    def _is_spent(self) -> bool:
        cap = self._asked.max_cost
        if cap and (self._spent >= cap or self.status == USAGE):
            self._say(f"{CAP}={cap:g} is reached: ${self._spent:.2f} were spent in all")
            return True
        return False

    def _left_over(self) -> str:
        spent = f", ${self._spent:.2f} spent" if self._spent else ""
        return f" ({len(self._failing)} still failing{spent})" if self._failing else spent

    def _final(self) -> int:
        """Give the exit status: no green one while a test fails that has not passed since."""
        if self._failing and self.status in (0, NOTHING_SELECTED):
            return 1
        return self.status

    @staticmethod
    def _say(text: str) -> None:
        sys.stdout.write(f"watch: {text}\n")
        sys.stdout.flush()

    # the end

    def _end_child(self) -> None:
        """Let the session end as Ctrl-C ends one, its far side too; a second Ctrl-C hands on."""
        child = self._child
        assert child is not None
        while child.poll() is None:
            try:
                if sys.platform != "win32":
                    child.send_signal(signal.SIGINT)
                child.wait()
            except KeyboardInterrupt:
                continue
        self.status = INTERRUPTED

    def _end_by_signal(self, *_: object) -> None:
        raise KeyboardInterrupt


def _file(id: str) -> PurePosixPath:
    return PurePosixPath(id.partition("::")[0])


def _result(path: Path) -> Result:
    """Read what a run wrote down."""
    try:
        return Result(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return Result()


def _library() -> Any:
    try:
        import watchfiles  # noqa: PLC0415 -- an extra, and nobody else needs it
    except ImportError as error:
        raise UsageError(
            f"--remote-watch needs the package watchfiles, which can't be imported ({error}); "
            "install it with: pip install 'pytest-remotegpu[watch]'"
        ) from None
    return watchfiles


def _catch(handle: Any) -> dict[int, Any]:
    """Let other signals that end a process end the loop as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    return {number: signal.signal(number, handle) for number in numbers}


def _restore(before: Mapping[int, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)


def loop(config: pytest.Config, settings: Settings) -> int:
    """Run the loop of a command line; give its exit status.

    :raises UsageError: for options that don't go together with it.
    """
    option = config.option
    for name, text in CLASHES.items():
        if getattr(option, name, None):
            raise UsageError(f"--remote-watch and {text} do not go together; leave out one")
    folder = config.invocation_params.dir
    written = [
        settings.artifacts,
        settings.json,
        *(getattr(option, name, None) for name in ("xmlpath", "log_file", "basetemp", "htmlpath")),
    ]
    asked = Asked(
        [str(each) for each in config.invocation_params.args],
        sys.orig_argv,
        folder,
        config.rootpath,
        tuple(config.getini("python_files")),
        narrow=not option.pyargs,
        max_cost=settings.max_cost,
        left_out=tuple(folder / str(each) for each in written if each),
    )
    return Loop(asked).run()
