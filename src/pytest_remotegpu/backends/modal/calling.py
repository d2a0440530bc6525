"""A courier as the session sees it: a process that speaks to the service, and one call through it.

Knows neither the service's SDK nor the bytes that are carried.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.backends.modal import course, stays, trouble
from pytest_remotegpu.backends.stdio import StdioChannel
from pytest_remotegpu.errors import FarSideError, UsageError

if TYPE_CHECKING:
    from pytest_remotegpu.backends.modal import Modal

__all__ = ["Courier"]

COURIER: Final = "pytest_remotegpu.backends.modal.courier"
RATES: Final = "--rates"
MARK: Final = b"\x1e"
SIGNING_IN: Final = 30.0
"""Seconds in which a courier must know whether the service takes the token."""
LAST_LINES: Final = 12
"""Lines of an image's build that are shown where it fails."""
ENDING: Final = 4.0
"""Seconds that a courier has to be gone once it writes no more."""


class Courier(StdioChannel):
    """A process that speaks to the service, and one call through it.

    :param backend: hears what the user should know, and how calls end.
    :ivar note: where the work runs, once that is known.
    :ivar preempted: whether its container was taken away; ``on_notice``, called before that.
    :ivar rental: the container, since when and how long.
    :ivar headline: what has ended it, where that was a signal that nobody here has sent.
    """

    def __init__(self, python: str, backend: Modal, variables: Mapping[str, str]) -> None:
        self._backend = backend
        self._settled = threading.Event()
        self._end: dict[str, str] = {}
        self._diagnosis = ""
        self._container = ""
        self._course = course.Course()
        self._is_stopped = False
        self.headline = ""
        self._stay = stays.Stay(keeps=backend.keeps)
        self.rental = self._stay.rental
        self._call = ("", "", "", "")
        self.preempted = False
        self.on_notice: Callable[[], None] = lambda: None
        asks = [RATES] if backend.wants_rates() else []
        self._called = time.monotonic()
        super().__init__([python, "-P", "-m", COURIER, *asks], variables)

    def _listen(self) -> None:
        """Read what the courier says: marked lines are for us, others for people."""
        assert self._process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            for line in self._process.stderr:
                if line.startswith(MARK):
                    self._hear(json.loads(line[1:]))
                elif line.strip():
                    self._errors += line
                    del self._errors[: -(2**14)]
                    self._backend.build.line(line.decode("utf-8", "replace").rstrip())
        self._backend.build.end(self)
        self._settled.set()

    def _hear(self, said: dict[str, Any]) -> None:
        self._stay.hear(said, time.monotonic(), time.time())
        self._backend.build.hear(self, said)
        self._course.hear(said)
        if "asked" in said:
            self._backend.asked(time.monotonic())
        elif "end" in said:
            self._end, self.preempted = said, said["end"] == "preempted"
        elif "say" in said:
            self._backend.tell(said["say"], page=said.get("page"))
        elif "rates" in said:
            self._backend.take_rates(said["rates"], said["workspace"])
        elif "notice" in said:
            self.on_notice()
        elif "ended" in said:
            self._diagnosis = said["ended"]
        elif "call" in said:
            self._call = (*self._call[:3], said["call"])
        if "container" in said:
            self._container = said["container"]
            self._backend.deployed()
        if "ready" in said or "end" in said:
            self._settled.set()

    def signed_in(self) -> None:
        """Wait until the service takes the token.

        :raises UsageError: where it does not. :raises FarSideError: where it does not answer.
        """
        if not self._settled.wait(SIGNING_IN):
            self.stop()
            raise FarSideError(f"Modal does not answer within {SIGNING_IN:g} s", fix=trouble.LOOK)
        self._raise_end()

    def _raise_end(self) -> None:
        what, fix = self._end.get("text", ""), self._end.get("fix", "")
        if self._end.get("end") == "usage":
            raise UsageError(what, fix=fix)
        if self._end.get("end") == "infra":
            last = self._last_lines() if self._end.get("built") else []
            raise FarSideError("\n".join([what, *last]), fix=fix)

    def call(self, order: dict[str, Any]) -> None:
        """Say what is to be called; the first piece that is sent begins it."""
        self._called = time.monotonic()
        self._call = (order["queue"], order["nonce"], order["claims"], "")
        self._stay.app = order["app"]
        self._backend.stays.append(self._stay)
        super().send(json.dumps(order).encode() + b"\n")

    def send(self, data: bytes) -> None:
        """Send one piece.

        :raises FarSideError: where the courier is gone.
        """
        super().send(len(data).to_bytes(8, "big") + data)

    def frames(self) -> Iterator[bytes]:
        """Yield what the worker sends.

        :raises UsageError: where the service refuses what was asked for.
        :raises FarSideError: where no test can run.
        """
        spoke = 0.0
        for data in super().frames():
            spoke = spoke or time.monotonic()
            yield data
        self._listener.join(5.0)
        self._stay.close()
        if self.rental.asked is not None and not self._end and not self._diagnosis:
            self._backend.abandoned(self._call)
        self._look_whether_killed()
        worked = time.monotonic() - spoke if spoke else 0.0
        lost = self._end.get("text", "") if self.passing else ""
        self._backend.ended(self._called, lost=lost, worked=worked)
        self._raise_end()

    def _look_whether_killed(self) -> None:
        """Find out what has ended it; one that was killed may be replaced, in bounds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING)
        code = self._process.returncode
        killed = code is not None and code < 0 and not (self._end or self._is_stopped)
        if killed:
            self.headline = f"{self._course.killed(-code, self._process.pid)}; {course.FIX}"
        again = killed and (self._course.began or self._backend.replaces())
        self.passing = again or self._end.get("end") in trouble.PASSING

    def stop(self) -> None:
        """End it and its call; see :meth:`StdioChannel.stop`."""
        self._is_stopped = True
        super().stop()

    @property
    def fix(self) -> str:
        """What to do about how the work ended."""
        return course.FIX if self.headline else self._end.get("fix", "")

    def diagnosis(self) -> str:
        """Say how the work ended; of what was printed the last, where it may have to do with it."""
        passing = self.passing
        text = super().diagnosis()
        self.passing = passing
        if self.headline:
            return "" if self._course.began else "\n".join(self._last_lines())
        said = [self._end.get(part, "") for part in ("text", "fix")]
        return "; ".join(filter(None, said)) or self._diagnosis or text

    def _last_lines(self) -> list[str]:
        return self._errors.decode("utf-8", "replace").splitlines()[-LAST_LINES:]
