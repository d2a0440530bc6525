"""Sessions with a scripted far side, and what became of each test in them.

Knows pytester, pytest's reports and the fakes; knows nothing of how a session is run.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import fakes
import pytest_remotegpu.takeover  # noqa: F401  once here, instead of anew in each session
from pytest_remotegpu.errors import FarSideError

__all__ = ["FAR", "HERE", "PASSED", "Played", "Stage", "each"]

FILE = "test_far.py"
FAR = ("test_far.py::test_a", "test_far.py::test_b", "test_far.py::test_c")
HERE = ("test_here.py::test_one", "test_here.py::test_two")
PASSED = [("setup", "passed"), ("call", "passed"), ("teardown", "passed")]

COLLECTS_HERE = ("-o", "remotegpu_collect=here")
"""A script says what becomes of tests; it can't collect them, unless it is written to do that."""

_FILES = {
    "pytest.ini": "[pytest]\n",
    "test_far.py": """
        import pytest
        pytestmark = pytest.mark.gpu

        def test_a():
            raise AssertionError("it ran here")

        test_b = test_c = test_a
    """,
    "test_here.py": """
        def test_one():
            pass

        def test_two():
            pass
    """,
}


@dataclass(frozen=True)
class Played:
    """What a session came to.

    :ivar ret: its exit status. :ivar text: all that it printed.
    :ivar phases: for each test the phase and outcome of each of its reports, in order.
    :ivar texts: for each test the text of its failures.
    :ivar starts: the ids of the tests that began, in order. :ivar warned: the recorded warnings.
    :ivar made: the files that it left behind, other than caches.
    :ivar workers: how many workers it asked for.
    """

    ret: int
    text: str
    phases: dict[str, list[tuple[str, str]]]
    texts: dict[str, str]
    starts: list[str]
    warned: list[Any]
    made: list[str]
    workers: int = 0

    def verdict(self, id: str) -> str:
        """Say what a test came to: ``passed``, ``failed``, ``skipped`` or ``none``.

        :raises AssertionError: where it came to more than one thing.
        """
        phases = self.phases.get(id, [])
        names = [when for when, _ in phases]
        assert len(set(names)) == len(names), f"{id} was reported twice: {phases}"
        assert self.starts.count(id) == bool(phases), f"{id} began {self.starts.count(id)} times"
        outcomes = {outcome for _, outcome in phases}
        if not phases:
            return "none"
        assert names[0] == "setup", phases
        assert names[-1] == "teardown", phases
        return next(word for word in ("failed", "skipped", "passed") if word in outcomes)

    def caught(self, *, said: str, guilty: tuple[str, ...] = FAR) -> None:
        """See that a lie was caught: its tests fail and say why, others pass, nothing is left."""
        assert self.ret == 1, f"status {self.ret}: {self.text}"
        assert "INTERNALERROR>" not in self.text, self.text
        others = tuple(id for id in (*FAR, *HERE) if id not in guilty)
        assert self.verdicts(guilty) == ["failed"] * len(guilty), self.text
        assert self.verdicts(others) == ["passed"] * len(others), self.text
        assert said in self.text, f"it does not say {said!r}: {self.text}"
        assert self.made == [], f"it left {self.made}"

    def verdicts(self, ids: tuple[str, ...] = FAR) -> list[str]:
        """Give the verdict of each of these tests."""
        return [self.verdict(id) for id in ids]


def _lane(session: Played, file: str) -> Played:
    """Cut what concerns one file's tests, and the local ones, out of a session."""
    names = {f"{file}::{id.partition('::')[2]}": id for id in FAR} | {id: id for id in HERE}
    phases = {names[id]: found for id, found in session.phases.items() if id in names}
    return replace(
        session,
        ret=int(any(outcome == "failed" for found in phases.values() for _, outcome in found)),
        text="\n".join(text for id, text in session.texts.items() if id in names),
        phases=phases,
        starts=[names[id] for id in session.starts if id in names],
    )


def each(lanes: Mapping[str, Played], check: Callable[[str, Played], None]) -> None:
    """Check what became of each script; where some are wrong, name them all."""
    wrong = []
    for name, played in lanes.items():
        try:
            check(name, played)
        except AssertionError as error:
            wrong.append(f"{name}: {error!s}")
    assert not wrong, "\n\n".join(wrong)


class Stage:
    """Holds a project of three shipped and two local tests, and runs sessions over it.

    :ivar path: the project's folder; what lies beside it belongs to the stage as well.
    """

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pytester = pytester
        self.path = pytester.mkdir("project")
        for name, text in _FILES.items():
            (self.path / name).write_text(textwrap.dedent(text))
        pytester.syspathinsert(fakes.register(pytester.path / "fakes"))
        monkeypatch.chdir(self.path)
        # Other plugins would be imported anew in each session, which takes longer than the session.
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def waits_here(self) -> Path:
        """Let a local test run until a file is there; give that file's path."""
        told = self.path.parent / "told"
        (self.path / "test_here.py").write_text(f"""if 1:
        import pathlib, time

        def test_one():
            end = time.monotonic() + 20
            while not pathlib.Path({str(told)!r}).exists():
                assert time.monotonic() < end
                time.sleep(0.02)

        def test_two(): pass
    """)
        return told

    def run(self, *scripts: fakes.Script | FarSideError, args: tuple[str, ...] = ()) -> Played:
        """Run a session whose workers follow these scripts."""
        played, workers = self._run(scripts, args)
        return replace(played, workers=workers)

    def run_lanes(
        self, scripts: Mapping[str, fakes.Script], *args: str, status: int = 1
    ) -> dict[str, Played]:
        """Run one session in which each script has three tests of its own; give what each came to.

        Each of them reads as if it had been a session by itself: its tests have the ids of ``FAR``,
        its text is that of their reports, its status 1 where one failed.

        :param status: the exit status of the whole session.
        """
        (self.path / FILE).unlink()
        for at in range(len(scripts)):
            text = textwrap.dedent(_FILES[FILE]).replace("mark.gpu", f"mark.gpu({at + 1})")
            (self.path / f"test_far{at:02}.py").write_text(text)
        played, _ = self._run({at + 1: script for at, script in enumerate(scripts.values())}, args)
        assert "INTERNALERROR>" not in played.text, played.text
        assert played.ret == status, f"status {played.ret}: {played.text}"
        return {name: _lane(played, f"test_far{at:02}.py") for at, name in enumerate(scripts)}

    def _run(
        self,
        scripts: Sequence[fakes.Script | FarSideError] | Mapping[int, fakes.Script],
        args: tuple[str, ...],
    ) -> tuple[Played, int]:
        name = self._pytester.path.name
        backend = fakes.STAGED[name] = fakes.Scripted(f"scripted:{name}", scripts)
        try:
            played = self.run_on(f"scripted:{name}", *COLLECTS_HERE, *args)
        finally:
            del fakes.STAGED[name]
        for channel in backend.channels:
            channel.stop()
            channel.join()
            if channel.fault is not None:
                raise channel.fault
        return played, backend.opened

    def run_on(self, spec: str, *args: str) -> Played:
        """Run a session on any far side; its workers are not counted."""
        before = self._files()
        result = self._pytester.runpytest_inprocess(
            "-p", "pytest_remotegpu.plugin", f"--remote={spec}", *args, no_reraise_ctrlc=True
        )
        return self._played(result, before)

    def _played(self, result: pytest.RunResult, before: set[str]) -> Played:
        record: Any = result.__dict__[
            "reprec"
        ]  # pytester puts it there after a run in this process
        phases: dict[str, list[tuple[str, str]]] = {}
        texts: dict[str, str] = {}
        for report in record.getreports("pytest_runtest_logreport"):
            phases.setdefault(report.nodeid, []).append((report.when, report.outcome))
            texts[report.nodeid] = texts.get(report.nodeid, "") + report.longreprtext
        return Played(
            int(result.ret),
            "\n".join([*result.outlines, *result.errlines]),
            phases,
            texts,
            [call.nodeid for call in record.getcalls("pytest_runtest_logstart")],
            [call.warning_message for call in record.getcalls("pytest_warning_recorded")],
            sorted(self._files() - before),
        )

    def _files(self) -> set[str]:
        """List what lies in the project's folder and beside it."""
        top = self._pytester.path
        found = (path.relative_to(top) for path in top.rglob("*"))
        caches = {".pytest_cache", "__pycache__"}
        return {path.as_posix() for path in found if not caches & set(path.parts)}
