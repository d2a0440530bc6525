"""The tests that every backend has to pass, to be subclassed with a ``backend`` fixture.

Knows the contract and the wire; knows no particular backend.
"""

# ruff: noqa: D102, PLR2004 -- as in any file of tests: they assert, and their names say what

from __future__ import annotations

import contextlib
import math
import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from pytest_remotegpu.backends.base import Backend, Collects, Environment, Lists, Prices
from pytest_remotegpu.errors import FarSideError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.protocol.hello import PROTOCOL, Hello
from pytest_remotegpu.protocol.plain import from_text
from pytest_remotegpu.testing import project as kit
from pytest_remotegpu.testing.project import Project
from pytest_remotegpu.testing.talk import Talk

__all__ = ["BackendConformance", "Recording"]

PASSED: Final = [("setup", "passed"), ("call", "passed"), ("teardown", "passed")]
FAILED: Final = [("setup", "passed"), ("call", "failed"), ("teardown", "passed")]


@dataclass(frozen=True)
class Recording:
    """All that came back from one ordinary session."""

    hello: Hello
    said: list[events.Event]
    why: BaseException | None
    diagnosis: str

    def of(self, place: int) -> list[events.Event]:
        """List the events of one test."""
        return [event for event in self.said if getattr(event, "item", -1) == place]

    def phases(self, place: int) -> list[tuple[str, str]]:
        """List phase and outcome of each report of one test."""
        return [
            (from_text(event.when or b""), from_text(event.outcome))
            for event in self.of(place)
            if isinstance(event, events.Report)
        ]

    def output(self, place: int) -> str:
        """Give what one test wrote to its stdout."""
        pieces = [
            event.text
            for event in self.of(place)
            if isinstance(event, events.Section) and event.name == b"Captured stdout call"
        ]
        return from_text(b"".join(pieces))


class BackendConformance:
    """Subclass it, define the fixture ``backend``, and let pytest collect the subclass.

    The kit writes a small project, opens channels as a session does, and looks at the frames that
    come back. Wherever the worker runs, that interpreter must hold this version of the package.

    These can be overridden:

    * ``backend``: the backend under test, of any fixture scope; it must offer ``shape``.
    * ``unable``: a backend of the same kind whose far side can't start (a host that is not there, a
      program that ends at once). Without it that one test is skipped.
    * ``shape``: what to ask for; one GPU.
    * ``environment``: what a session would hand to ``open``.
    * ``runs``: how to find out whether a process of the far host still runs; the default looks on
      this host, and skips where the worker is on another.

    :cvar patience: seconds that any one thing may take, the start of a worker included.
    :cvar output_bytes: how much one test prints; ``50_000_000`` shows more than the default does.
    """

    patience: float = 60.0
    output_bytes: int = 4 * 2**20

    @pytest.fixture
    def backend(self) -> Backend:
        """Give the backend under test."""
        raise NotImplementedError(
            "override the fixture 'backend'; it returns the backend under test"
        )

    @pytest.fixture
    def unable(self) -> Backend:
        """Give a backend whose far side can't start."""
        pytest.skip("override the fixture 'unable' with a backend whose far side can't start")

    @pytest.fixture
    def shape(self) -> Shape:
        """Give the shape to ask for."""
        return Shape(1)

    @pytest.fixture
    def environment(self) -> Environment:
        """Give the surroundings that a session would hand over."""
        return Environment({**kit.clean(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})

    def runs(self, pid: int, hello: Hello) -> bool:
        """Say whether the process ``pid`` of the worker's host still runs; a zombie does not."""
        if hello.host != socket.gethostname() or sys.platform == "win32":
            pytest.skip("the worker is on another host; override 'runs' to look there")
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        if sys.platform == "linux":
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            return True
        return False

    @pytest.fixture
    def project(self, tmp_path: Path) -> Project:
        """Write the kit's project."""
        return Project.write(tmp_path / "kit project")

    @pytest.fixture
    def talk(self, backend: Backend, shape: Shape, environment: Environment) -> Talk:
        """Open a channel; the test has to enter it."""
        return Talk(backend, shape, environment, self.patience)

    @pytest.fixture
    def recording(self, request: pytest.FixtureRequest) -> Recording:
        """Give the record of an ordinary session, which is run once for each subclass."""
        owner = request.node.getparent(pytest.Class)
        if RECORDED not in owner.stash:
            try:
                owner.stash[RECORDED] = self._record(
                    request.getfixturevalue("talk"), request.getfixturevalue("project")
                )
            except (AssertionError, FarSideError) as error:
                owner.stash[RECORDED] = error
        found = owner.stash[RECORDED]
        if isinstance(found, Recording):
            return found
        raise AssertionError(f"the ordinary session failed: {found}")

    def _record(self, talk: Talk, project: Project) -> Recording:
        variables = {kit.VARIABLE: "ä b=c\n", kit.BIG: str(self.output_bytes)}
        with talk:
            talk.ask(project, kit.SESSION, variables=variables)
            talk.to_the_end()
            assert talk.hello is not None, f"the stream ended before its hello: {talk.state()}"
            assert talk.over is not None
            return Recording(talk.hello, talk.said, talk.over.why, talk.channel.diagnosis())

    # an ordinary session

    def test_says_hello_first(self, recording: Recording) -> None:
        assert recording.hello.protocol == PROTOCOL

    def test_offers_the_shape(self, recording: Recording, shape: Shape) -> None:
        hello = recording.hello
        assert (len(hello.gpus) if hello.pretend is None else hello.pretend) >= shape.count

    def test_ends_in_good_order(self, recording: Recording) -> None:
        assert recording.why is None, recording.diagnosis
        assert isinstance(recording.said[-1], events.Ended)

    def test_each_test_comes_back_once(self, recording: Recording) -> None:
        begun = [event.item for event in recording.said if isinstance(event, events.Started)]
        ended = [
            event.item
            for event in recording.said
            if isinstance(event, events.Finished | events.Crashed | events.NotFound)
        ]
        assert begun == ended == list(range(len(kit.SESSION)))

    @pytest.mark.parametrize(
        ("name", "phases"),
        [
            ("test_environment", PASSED),
            ("test_long", PASSED),
            ("test_日本", PASSED),
            ("test_fails", FAILED),
            ("test_after_the_crash", PASSED),
        ],
        ids=["plain", "long id", "unicode", "failed", "after a crash"],
    )
    def test_reports(self, recording: Recording, name: str, phases: list[tuple[str, str]]) -> None:
        assert recording.phases(_place(name)) == phases

    def test_variables_of_the_order_arrive(self, recording: Recording) -> None:
        assert recording.output(_place("test_environment")) == "value: ä b=c\n\n"

    def test_unicode_output_arrives(self, recording: Recording) -> None:
        assert recording.output(_place("test_日本")) == "ąß🂡\n"

    def test_big_output_arrives_whole(self, recording: Recording) -> None:
        output = recording.output(_place("test_big"))
        expected = "<" + "0123456789abcdef" * (self.output_bytes // 16) + ">\n"
        assert output == expected, f"{len(output)} of {len(expected)} characters came"

    def test_stdout_of_tests_stays_out_of_the_channel(self, recording: Recording) -> None:
        output = recording.output(_place("test_noise"))
        assert output.count("garbage!") == 100
        assert "on the first stdout" in output
        assert "from a child" in output

    def test_crash_is_told(self, recording: Recording) -> None:
        crashes = [event for event in recording.said if isinstance(event, events.Crashed)]
        assert [crash.item for crash in crashes] == [_place("test_crash")]
        assert "7" in crashes[0].cause
        assert b"last words" in crashes[0].stdout

    # other conversations

    def test_later_messages_arrive(self, talk: Talk, project: Project) -> None:
        """A second stretch, and contents that the worker asked for; then, what is said too late."""
        ids = ("test_kit.py::test_ballast", "test_kit.py::test_after_the_crash")
        with talk:
            talk.begin(project, ids, 1)
            if talk.backend.ships_tree:
                wanted = talk.until(events.Need).digests
                talk.say(*(blob for blob in project.blobs() if blob.digest in wanted))
            talk.until(events.StretchEnded)
            talk.say(orders.Run(1, 2), orders.Finish())
            talk.to_the_end()
            assert [e.item for e in talk.said if isinstance(e, events.Finished)] == [0, 1]
            assert talk.over is not None
            assert talk.over.why is None, talk.state()
            with contextlib.suppress(FarSideError):
                talk.say(orders.Finish())
            talk.channel.stop()
            talk.channel.stop()
            with contextlib.suppress(FarSideError):
                talk.say(orders.Finish())

    def test_workers_of_one_shape_share_tests(
        self, backend: Backend, shape: Shape, environment: Environment, project: Project
    ) -> None:
        """Each collects, is asked for more than it can begin, and gives back what it has not."""
        ids = ("test_kit.py::test_after_the_crash", "test_kit.py::test_environment")
        with (
            Talk(backend, shape, environment, self.patience) as one,
            Talk(backend, shape, environment, self.patience) as two,
        ):
            for talk in (one, two):
                talk.begin(project, ids, 0)
                if backend.ships_tree:
                    talk.say(*project.blobs())
            for talk in (one, two):
                talk.until(events.StretchEnded)
                talk.say(orders.Run(0, 1), orders.Run(1, 2), orders.Withdraw(), orders.Finish())
            for talk in (one, two):
                talk.to_the_end()
                assert talk.over is not None
                assert talk.over.why is None, talk.state()
                ran = [event.item for event in talk.said if isinstance(event, events.Finished)]
                back = [event.first for event in talk.said if isinstance(event, events.Withdrawn)]
                assert ran + back == [0, 1], talk.state()  # the second one may have begun by then

    def test_stop_while_a_test_runs_leaves_nothing_behind(
        self, talk: Talk, project: Project
    ) -> None:
        with talk:
            talk.ask(project, ("test_kit.py::test_sleeps",), live=True)
            live = b""  # a line may come in pieces
            while b"\n" not in live.partition(b"pids")[2]:
                live += talk.until(events.Live).data
            hello = talk.hello
            assert hello is not None
            pids = [int(word) for word in live.partition(b"pids")[2].split(b"\n")[0].split()]
            assert len(pids) >= 3
            assert all(self.runs(pid, hello) for pid in pids)
            talk.channel.stop()
            talk.to_the_end()
            talk.channel.stop()
            assert self._left(pids, hello) == []

    def _left(self, pids: list[int], hello: Hello) -> list[int]:
        """Give those of the processes that outlast a short while."""
        deadline = time.monotonic() + min(self.patience, 10.0)
        left = pids
        while left and time.monotonic() < deadline:
            left = [pid for pid in left if self.runs(pid, hello)]
            time.sleep(0.01 if left else 0)
        return left

    def test_stop_before_anything_was_sent(self, talk: Talk) -> None:
        with talk:
            talk.channel.stop()
            talk.to_the_end()
            assert talk.said == []

    def test_killed_worker_is_noticed(self, talk: Talk, project: Project) -> None:
        """The stream stops short, the iterator ends quietly, and the channel can say something."""
        with talk:
            talk.ask(project, ("test_kit.py::test_kills_the_worker",))
            talk.to_the_end()
            assert talk.over is not None
            assert "stops" in str(talk.over.why), talk.state()
            assert talk.channel.diagnosis().strip()
            with contextlib.suppress(FarSideError):
                talk.say(orders.Stop(0.0))

    def test_two_channels_do_not_mix(
        self, backend: Backend, shape: Shape, environment: Environment, project: Project
    ) -> None:
        """Each is read by the eyes of its own id and nonce, which a foreign frame would offend."""
        ids = ("test_kit.py::test_environment",)
        with (
            Talk(backend, shape, environment, self.patience) as one,
            Talk(backend, shape, environment, self.patience) as two,
        ):
            for talk, value in ((two, "second"), (one, "first")):
                talk.ask(project, ids, variables={kit.VARIABLE: value})
            for talk, value in ((one, "first"), (two, "second")):
                assert value in from_text(talk.until(events.Section).text)
                talk.to_the_end()
                assert talk.over is not None
                assert talk.over.why is None, talk.state()

    def test_far_side_that_cannot_start_says_why(
        self, unable: Backend, shape: Shape, environment: Environment, project: Project
    ) -> None:
        """Either ``open`` raises, or the stream ends and the channel has something to say of it."""
        try:
            talk = Talk(unable, shape, environment, self.patience)
        except FarSideError as error:
            assert str(error)  # noqa: PT017  raising is one of two ways that are right
            return
        with talk:
            with contextlib.suppress(FarSideError):
                talk.ask(project, ("test_kit.py::test_environment",))
            talk.to_the_end()
            assert talk.hello is None
            assert talk.channel.diagnosis().strip()

    # what a backend may offer beyond that

    def test_price(self, backend: Backend, shape: Shape) -> None:
        if not isinstance(backend, Prices):
            pytest.skip("this backend names no prices")
        price = backend.price(shape)
        if price is None:
            return
        assert price.usd_per_hour is None or (0 < price.usd_per_hour < math.inf and price.date)
        assert 0 <= price.after < math.inf
        assert 0 <= price.ending < math.inf

    def test_listing(
        self, backend: Backend, project: Project, request: pytest.FixtureRequest
    ) -> None:
        if not isinstance(backend, Lists):
            pytest.skip("this backend lists nothing")
        talk: Talk = request.getfixturevalue("talk")
        with talk:
            talk.ask(project, ("test_kit.py::test_sleeps",), live=True)
            talk.until(events.Live)
            [running] = backend.list()
            assert running.id
            assert running.about
            assert all(isinstance(line, str) for line in backend.logs(running.id))
            left = backend.orphans() if isinstance(backend, Collects) else []
            assert running.id not in {each.id for each in left}
            backend.stop(running.id)
            talk.to_the_end()
            assert backend.list() == []
            with pytest.raises(FarSideError):
                backend.stop(running.id)


RECORDED: Final = pytest.StashKey[Recording | Exception]()


def _place(name: str) -> int:
    """Give the place of a test of the ordinary session."""
    return next(i for i, id in enumerate(kit.SESSION) if id.partition("::")[2].startswith(name))
