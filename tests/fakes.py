"""Stand-ins in the hands of tests: a far side that follows a script, and one of Modal's shape.

They fulfil the contract of backends and are otherwise ordinary code; nothing of the package is
replaced. Knows the wire and the contract, nothing of pytest's hooks.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.backends.base import Channel, Environment, Price, Running, Site
from pytest_remotegpu.errors import FarSideError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import events, frames, orders, packing
from pytest_remotegpu.protocol.hello import Hello

__all__ = [
    "Far",
    "OneRequest",
    "Script",
    "Scripted",
    "Stopped",
    "make_scripted",
    "register",
    "report",
]

PATIENCE: Final = 20.0
"""Seconds that a script waits for anything."""


class Stopped(Exception):  # noqa: N818  it is no error: the session has stopped the script's channel
    """Raised in a script's thread once its channel has been stopped."""


# ---------------------------------------------------------------- a far side that follows a script


def report(item: int, when: str, outcome: str = "passed", **changes: Any) -> events.Report:
    """Make a report as an honest runner sends it, with some of its data changed."""
    data = {
        "$report_type": "TestReport",
        "when": when,
        "outcome": outcome,
        "duration": 0.001,
        "start": 1.0,
        "stop": 1.001,
        "keywords": {"gpu": 1},
        "sections": [],
        "longrepr": "it failed there" if outcome == "failed" else None,
        "user_properties": [],
    }
    return packing.pack_report(item, {**data, **changes}, [], keywords=when == "setup", changed=[])


class Far:
    """The far end of one channel, in the hands of a script."""

    def __init__(self) -> None:
        self.inward: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.outward: queue.Queue[bytes | None] = queue.Queue(maxsize=8)
        self.stopped = threading.Event()
        self.warned: Callable[[], None] = lambda: None
        self.preempted = False
        self._frames = frames.Frames(frames.MAX_OUTBOUND)
        self._bodies: list[bytes] = []
        self._order: orders.Order | None = None
        self.sent = 0

    # what came from the session

    def _next_body(self) -> bytes:
        deadline = time.monotonic() + PATIENCE
        while not self._bodies:
            if self.stopped.is_set():
                raise Stopped
            if time.monotonic() > deadline:
                raise AssertionError("the session sent nothing more")
            with contextlib.suppress(queue.Empty):
                self._bodies += self._frames.feed(self.inward.get(timeout=0.05))
        return self._bodies.pop(0)

    @property
    def order(self) -> orders.Order:
        """The order, which the session sends first."""
        if self._order is None:
            Hello.decode(self._next_body())
            message = frames.read_message(self._next_body())
            assert isinstance(message, orders.Order)
            self._order = message
        return self._order

    def message(self) -> Any:
        """Wait for what the session sends after the order."""
        _ = self.order
        return frames.read_message(self._next_body())

    # what goes back

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        while not self.stopped.is_set():
            with contextlib.suppress(queue.Full):
                self.outward.put(data, timeout=0.05)
                return
        raise Stopped

    def frame(self, body: bytes) -> None:
        """Send one frame with this body."""
        self.raw(frames.frame(body))

    def greet(self, **changes: Any) -> None:
        """Say an honest hello, with some of it changed."""
        self.frame(Hello.here(**{"pretend": 2, "host": "fake", **changes}).encode())

    def encoded(self, encoded: bytes, count: int) -> None:
        """Send encoded events in a well-formed frame."""
        order = self.order
        self.raw(frames.encode_frame(order.worker, order.nonce, self.sent, encoded))
        self.sent += count

    def say(self, *said: events.Event) -> None:
        """Send events in a well-formed frame."""
        self.encoded(frames.encode_events(list(said)), len(said))

    def run(self, *places: int) -> None:
        """Run these tests as an honest worker does; they pass."""
        for place in places:
            phases = [report(place, when) for when in ("setup", "call", "teardown")]
            self.say(events.Started(place), *phases, events.Finished(place))

    def serve(self) -> None:
        """Serve the order as an honest worker does: each stretch, until nothing follows."""
        message: Any = self.order.run
        while isinstance(message, orders.Run):
            self.run(*range(message.first, message.last))
            self.say(events.StretchEnded())
            message = self.next_run()
        self.say(events.Ended())

    def next_run(self) -> Any:
        """Wait for what is to be done next; nothing waits here that could be given back."""
        message = self.message()
        while isinstance(message, orders.Follows | orders.Withdraw):
            message = self.message()
        return message

    def end(self) -> None:
        """End the stretch and the stream in good order."""
        self.say(events.StretchEnded(), events.Ended())


Script = Callable[[Far], None]


class ScriptedChannel:
    """A channel whose worker is a script in a thread; where the script returns, the stream ends."""

    def __init__(self, script: Script, name: str) -> None:
        self._far = Far()
        self._script = script
        self.fault: BaseException | None = None
        self._thread = threading.Thread(target=self._play, name=name, daemon=True)
        self._thread.start()

    def _play(self) -> None:
        try:
            self._script(self._far)
            with contextlib.suppress(Stopped):
                self._close()
        except Stopped:
            pass
        except BaseException as error:  # noqa: BLE001  shown by whoever runs the stage
            self.fault = error
            self._far.stopped.set()

    def _close(self) -> None:
        while not self._far.stopped.is_set():
            with contextlib.suppress(queue.Full):
                self._far.outward.put(None, timeout=0.05)
                return

    def send(self, data: bytes) -> None:
        """Hand bytes to the script."""
        if self._far.stopped.is_set():
            raise FarSideError("the script has ended")
        self._far.inward.put(data)

    def frames(self) -> Iterator[bytes]:
        """Yield what the script sends."""
        while not self._far.stopped.is_set():
            with contextlib.suppress(queue.Empty):
                data = self._far.outward.get(timeout=0.05)
                if data is None:
                    return
                yield data

    def stop(self) -> None:
        """End the script at its next step."""
        self._far.stopped.set()

    def join(self) -> None:
        """Wait for the script's thread."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the script did not end"

    @property
    def on_notice(self) -> Callable[[], None]:
        """What the script calls as ``warned`` to tell that its machine will be taken away."""
        return self._far.warned

    @on_notice.setter
    def on_notice(self, call: Callable[[], None]) -> None:
        self._far.warned = call

    @property
    def preempted(self) -> bool:
        """Whether the script says that its machine was taken away."""
        return self._far.preempted

    def diagnosis(self) -> str:
        """Say that it was a script."""
        return "the scripted worker is gone"


class Scripted:
    """A backend whose workers follow scripts, the first the first, and so on; the last repeats.

    In place of a script there may be the error with which no worker is to be had. Scripts by number
    of GPUs serve one shape each.
    """

    ships_tree = False
    capacity = None
    one_host = False
    pretends = True
    prompt = True
    where = "scripted"

    def __init__(
        self, name: str, scripts: Sequence[Script | FarSideError] | Mapping[int, Script]
    ) -> None:
        self.name = name
        self._scripts = scripts
        self.opened = 0
        self.channels: list[ScriptedChannel] = []

    def open(self, shape: Shape, environment: Environment) -> Channel:  # noqa: ARG002
        """Start a script."""
        if isinstance(self._scripts, Mapping):
            script: Script | FarSideError = self._scripts[shape.count]
        else:
            script = self._scripts[min(self.opened, len(self._scripts) - 1)]
        self.opened += 1
        if isinstance(script, FarSideError):
            raise script
        self.channels.append(ScriptedChannel(script, f"script-{self.opened}"))
        return self.channels[-1]


STAGED: Final[dict[str, Scripted]] = {}
"""The scripted backends that ``--remote=scripted:NAME`` finds."""


def make_scripted(rest: str, site: Site) -> Scripted:  # noqa: ARG001
    """Give the backend that a test has staged under this name."""
    return STAGED[rest]


def register(folder: Path) -> Path:
    """Write what makes this file's entry points known once ``folder`` is importable; give it."""
    home = folder / "fakes-0.dist-info"
    home.mkdir(parents=True)
    (home / "METADATA").write_text("Metadata-Version: 2.1\nName: fakes\nVersion: 0\n")
    lines = ["[pytest_remotegpu.backends]", "scripted = fakes:make_scripted"]
    lines += ["onerequest = fakes:make_one_request", ""]
    (home / "entry_points.txt").write_text("\n".join(lines))
    return folder


# ---------------------------------------------------------------- a far side of Modal's shape

LARGEST_ITEM: Final = 2**20
"""Bytes of one item of the queue towards a running call."""


class Call:
    """A remote call: takes ONE request and gives a generator; small items may follow on a queue."""

    def __init__(self, python: str, request: bytes, variables: dict[str, str]) -> None:
        self.inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.log: list[str] = []
        self._process = subprocess.Popen(
            [python, "-P", "-m", "pytest_remotegpu.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            start_new_session=True,
        )
        self._threads = [
            threading.Thread(target=self._feed, args=(request,), daemon=True),
            threading.Thread(target=self._keep_log, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _feed(self, request: bytes) -> None:
        """Write the request, then each item as it arrives, which is later than it was sent."""
        assert self._process.stdin is not None
        data: bytes | None = request
        with contextlib.suppress(OSError), self._process.stdin:
            while data is not None:
                self._process.stdin.write(data)
                self._process.stdin.flush()
                data = self.inbox.get()
                time.sleep(0.005)

    def _keep_log(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr:
            self.log += [line.decode("utf-8", "replace") for line in self._process.stderr]

    def results(self) -> Iterator[bytes]:
        """Yield what the worker writes."""
        assert self._process.stdout is not None
        with self._process.stdout:
            while data := os.read(self._process.stdout.fileno(), 2**18):
                yield data

    def cancel(self) -> None:
        """End the container and all in it."""
        self.inbox.put(None)
        self._process.terminate()
        self._wait()

    def _wait(self) -> None:
        self._process.wait(PATIENCE)
        self.inbox.put(None)
        for thread in self._threads:
            thread.join(PATIENCE)

    def end(self) -> str:
        """Say how it ended."""
        self._wait()
        return f"the call ended with {self._process.returncode}\n{''.join(self.log)}".strip()


class OneRequestChannel:
    """Bytes to a call that starts with its one request; before that, nothing runs."""

    def __init__(self, python: str, variables: dict[str, str]) -> None:
        self._python, self._variables = python, variables
        self._call: Call | None = None
        self._changed = threading.Condition()
        self.stopped = False

    def send(self, data: bytes) -> None:
        """Make the call, or put items on its queue."""
        with self._changed:
            if self.stopped:
                raise FarSideError("the call has been cancelled")
            if self._call is None:
                self._make_call(data)
                return
        assert self._call is not None
        for start in range(0, len(data), LARGEST_ITEM):
            self._call.inbox.put(data[start : start + LARGEST_ITEM])

    def _make_call(self, request: bytes) -> None:
        try:
            self._call = Call(self._python, request, self._variables)
        except OSError as error:
            self.stopped = True
            raise FarSideError(f"the call can't be made: {error}") from error
        finally:
            self._changed.notify_all()

    def frames(self) -> Iterator[bytes]:
        """Yield what the call gives, once it has been made."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopped or self._call is not None)
        if self._call is not None:
            yield from self._call.results()

    def stop(self) -> None:
        """Cancel the call."""
        with self._changed:
            self.stopped = True
            self._changed.notify_all()
        if self._call is not None:
            self._call.cancel()

    def diagnosis(self) -> str:
        """Say how the call ended."""
        return self._call.end() if self._call is not None else "the call was not made"

    def log(self) -> list[str]:
        """Give the lines that the call has written to its log."""
        return list(self._call.log) if self._call is not None else []


class OneRequest:
    """A backend of Modal's shape that rents real workers of this host; optional parts included."""

    ships_tree = True
    capacity = None
    one_host = False
    pretends = True
    prompt = False

    def __init__(self, python: str = sys.executable) -> None:
        self.name = "onerequest"
        self._python = python
        self.where = "calls of this host"
        self._channels: dict[str, OneRequestChannel] = {}

    def open(self, shape: Shape, environment: Environment) -> Channel:
        """Prepare a call."""
        pretend = {"PYTEST_REMOTEGPU_PRETEND_GPUS": str(max(shape.count, 1))}
        channel = OneRequestChannel(self._python, {**environment.variables, **pretend})
        self._channels[f"call-{len(self._channels)}"] = channel
        return channel

    def price(self, shape: Shape) -> Price | None:
        """Ask a dollar for an hour of each GPU."""
        return Price(float(shape.count), "2026-01-01") if shape.count else None

    def list(self) -> list[Running]:
        """Give the calls that have not been cancelled."""
        living = [id for id, channel in self._channels.items() if not channel.stopped]
        return [Running(id, "a call") for id in living]

    def _living(self, id: str) -> OneRequestChannel:
        if id not in {running.id for running in self.list()}:
            raise FarSideError(f"there is no call {id!r}")
        return self._channels[id]

    def stop(self, id: str) -> None:
        """Cancel a call."""
        self._living(id).stop()

    def orphans(self) -> Sequence[Running]:
        """Give nothing: no call outlives its session."""
        return []

    def collect(self, id: str) -> None:
        """Refuse, since there is nothing to collect."""
        raise FarSideError(f"there is no {id!r} to collect")

    def logs(self, id: str) -> Iterator[str]:
        """Yield the log of a call."""
        yield from self._living(id).log()


def make_one_request(rest: str, site: Site) -> OneRequest:  # noqa: ARG001
    """Give a backend of Modal's shape."""
    return OneRequest()
