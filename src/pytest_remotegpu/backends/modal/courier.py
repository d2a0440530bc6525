"""``python -m pytest_remotegpu.backends.modal.courier``: carry bytes to and from a container.

A process of its own, so that Modal's SDK, its threads and what is replaced in it are not in the
user's test process, nor at the mercy of what tests do to that: pytest-socket, frozen clocks, a
project's own ``modal`` folder. What stdin brings goes to the container, and what a container says
to stdout; on stderr, lines that begin with a mark are for the session, others for people. When
stdin ends, so does the work in the container, whatever has become of the session.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import re
import signal
import struct
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any, BinaryIO, Final, NoReturn

from pytest_remotegpu.backends.modal import container, greeting, sdk, signing, trouble
from pytest_remotegpu.backends.modal.outage import Outage, steady
from pytest_remotegpu.backends.modal.pieces import Splitter
from pytest_remotegpu.backends.modal.preparing import Preparing, watched
from pytest_remotegpu.errors import RemoteGpuError, UsageError

__all__ = ["LENGTH", "MARK", "main"]

MARK: Final = "\x1e"
LENGTH: Final = struct.Struct("!Q")
"""Stands before each piece on stdin."""
RATES: Final = "--rates"
"""Has a courier tell what the workspace pays, beside its work."""
AGAIN: Final = 1.0
"""Seconds after which a message is sent again that the service has not taken."""
MOST_WAITING: Final = 4
"""Pieces from the session that wait to be sent; then it has to wait."""
ENDING: Final = 3.0
"""Seconds to tell the service and a container that nothing is needed any more."""
SECOND: Final = re.compile(re.escape(container.IDLES) + r"([\w-]{1,64})", re.ASCII)
"""Finds the name of a container that was given a call which another one had begun."""
HAD: Final = ("InternalFailure", "FunctionTimeoutError", "OutputExpiredError")
"""Errors of the SDK's that a call has only once a container was at it."""


GONE: Final = trouble.Trouble("lost", "the session is gone")


class FailedError(Exception):
    """Ends the courier; ``trouble`` says how."""

    def __init__(self, found: trouble.Trouble) -> None:
        super().__init__(found.text)
        self.trouble = found


def tell(**what: Any) -> None:
    """Tell the session something, if it is there to hear it."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"\n{MARK}{json.dumps(what)}\n")
        sys.stderr.flush()


def say(text: str) -> None:
    """Tell the user something."""
    tell(say=text)


class Courier:
    """One call of the function, and what goes both ways.

    :param inward: pieces from the session. :param outward: bytes for it.
    """

    def __init__(self, modal: Any, inward: BinaryIO, outward: BinaryIO) -> None:
        self._modal = modal
        self._inward, self._outward = inward, outward
        self._call = ""
        self._container = ""
        self._queue: Any = None
        self._claims: Any = None
        self._said: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._gone = threading.Event()
        self._function: Any = None
        self._until = contextlib.ExitStack()
        self._asking = threading.Lock()
        self._asks = False
        self._made = False
        self._settled = threading.Event()
        self._refused = False
        self._leaving = threading.Lock()
        self._nonce = ""
        self._over = threading.Event()
        self._heard = threading.Event()
        self._mark = b""
        self._last = 0.0
        self._writes = self._noticed = False
        self._number = 0

    def serve(self, order: dict[str, Any]) -> None:
        """Carry until the worker ends.

        :raises FailedError: where it does not end by itself.
        """
        self._nonce = order["nonce"]
        threading.Thread(target=self._listen, daemon=True).start()
        if order["delay"]:
            say(f"waits {order['delay']:g} s before another container ({order['after']})")
            self._gone.wait(order["delay"])
        first = None if self._gone.is_set() else self._said.get()
        if first is None:
            return
        prepared = Preparing(self._modal, order, tell, self._until)

        def break_off() -> None:
            prepared.break_off()
            self.leave(GONE)

        with watched(self._inward, self._gone, break_off):
            self._function = self._guarded("preparing the app", prepared.run)
        self._queue, self._claims = prepared.queue, prepared.claims
        self._serve(order, first)
        done = {"cancelled": True, "app": False, "containers": None}
        self._end_app(done)
        tell(left=done)

    def _serve(self, order: dict[str, Any], first: bytes) -> None:
        self._end_earlier(order["earlier"])
        request = {
            key: order[key] for key in ("nonce", "queue", "claims", "preload", "env", "fresh")
        }
        since = time.time() - order["asked"] if order["asked"] else 0.0
        left = max(order["left"] - since, 1.0)
        line = json.dumps({**request, "seconds": left}).encode()
        for target in (self._forward, self._keep_alive):
            threading.Thread(target=target, daemon=True).start()
        self._guarded("starting a container", lambda: self._pass_on(line, first, order))
        self._over.set()

    def _guarded(self, during: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except (FailedError, UsageError):
            raise
        except Exception as error:  # noqa: BLE001 -- the border: whatever the SDK raises
            during = f"container {self._container}" if self._container else during
            found = _meaning(self._modal, error, during)
            if self._made and trouble.is_transport(self._modal, error):
                found = replace(found, kind="lost")  # a container may do its work unheard
            raise FailedError(found) from None

    def _pass_on(self, line: bytes, first: bytes, order: dict[str, Any]) -> None:
        patience = threading.Thread(target=self._wait_for_start, args=(order,), daemon=True)
        patience.start()
        self._ask()
        try:
            for chunk in self._function.remote_gen(line + b"\n" + first):
                self._take(chunk)
        except FailedError:
            raise
        except Exception as error:
            # else there may be a call although its answer was lost, whose id nobody will tell
            self._refused = not self._made and trouble.is_refusal(self._modal, error)
            self._settled.set()
            kinds = tuple(getattr(self._modal.exception, name) for name in HAD)
            if container.CLAIMED in str(error):
                found = SECOND.search(str(error))
                tell(moved=found[1]) if found else tell(gone=True)
            elif isinstance(error, kinds) or self._noticed:
                tell(gone=True)
            if self._noticed or container.PREEMPTED in str(error):
                raise FailedError(trouble.preempted(self._container)) from None
            raise
        if self._noticed:
            tell(gone=True)
            raise FailedError(trouble.preempted(self._container))

    def _ask(self) -> None:
        """Take note that a container is about to be asked for; not once the work is over."""
        with self._asking:
            self._asks = not self._over.is_set()
        if not self._asks:
            self.leave(GONE)
        tell(asked=True)

    def made(self, call: str) -> None:
        """Take note of the call's id; empty where only its container knows it."""
        self._call = call
        if call:
            tell(call=call)
        self._made = True
        self._settled.set()

    def kept(self, read: sdk.Reads) -> sdk.Reads:
        """Go on reading from a call where the service was away, for as long as a lease."""
        outage = Outage(container.LEASE, say)

        def reading() -> AsyncGenerator[Any, None]:
            return steady(read, lambda error: trouble.is_transport(self._modal, error), outage)

        return reading

    def _take(self, chunk: Any) -> None:
        if not isinstance(chunk, bytes) or len(chunk) < 13:  # noqa: PLR2004 -- kind, mark, number
            self._lose(f"a container sent {type(chunk).__name__}, which is no chunk")
        kind, mark, number, data = chunk[:1], chunk[1:9], chunk[9:13], chunk[13:]
        self._last = time.monotonic()
        self._mark = self._mark or mark
        self._number += 1
        if mark != self._mark:
            self._lose(f"the stream of container {self._container} goes on with another one's")
        if int.from_bytes(number, "big") != self._number:
            self._lose(
                f"the stream of container {self._container} has a gap:"
                f" chunk {int.from_bytes(number, 'big')} came where {self._number} was due"
            )
        if kind == container.GREETING:
            self._greet(data)
        elif kind == container.NOTICE:
            self._noticed = True
            tell(notice=True)
        elif kind == container.DIAGNOSIS:
            tell(ended=data.decode("utf-8", "replace"))
        elif kind == container.DATA:
            self._writes = True  # a session that is stopped reads nothing, for as long as it likes
            self._outward.write(data)
            self._outward.flush()
            self._last, self._writes = time.monotonic(), False

    def _greet(self, data: bytes) -> None:
        """Take in a container's first words, of which the call's id counts where none is known.

        For what has that id is cancelled by this user's rights.
        """
        if self._heard.is_set():
            self._lose(f"container {self._container} has greeted twice")
        said = greeting.read(data)
        if said is None:
            what = f"a container greets with {data[:60]!r}"
            raise FailedError(trouble.Trouble("infra", what, trouble.RETRY))
        self._container, self._call = said.container, self._call or said.call
        self._heard.set()
        tell(container=self._container, call=self._call, age=said.age)

    def _lose(self, text: str) -> NoReturn:
        raise FailedError(trouble.Trouble("lost", text))

    def _wait_for_start(self, order: dict[str, Any]) -> None:
        """Say that there is no container yet, and in the end wait no longer."""
        waited = 0.0
        began = time.monotonic()
        for pause in (10.0, 20.0, 30.0, *(60.0,) * 1000):
            limit = order["wait"] - waited if order["wait"] else float("inf")
            if self._heard.wait(min(pause, max(limit, 0.0))) or self._over.is_set():
                break
            waited = time.monotonic() - began
            card = order["gpu"] or "no GPU"
            if order["wait"] and waited >= order["wait"]:
                what = (
                    f"no container with {card} has started within {order['wait']:g} s"
                    " (--remote-wait)"
                )
                ways = [*filter(None, [order["further"]]), "wait longer"]
                fix = (
                    f"Modal has none free, or all {order['workers']} containers are at work that "
                    "sessions with this environment and card may have at once: "
                    f"{', or '.join(ways)}"
                )
                self.leave(trouble.Trouble("infra", what, fix))
            say(f"waits for a container with {card} ({waited:.0f} s)")

        looked = time.monotonic()
        while not self._over.wait(container.EVERY):
            now = time.monotonic()
            if now - looked > 2 * container.EVERY:
                self._last = now  # it was stopped; what came meanwhile is still to be read
            looked = now
            silence = now - self._last
            if silence > container.LEASE and not self._writes:
                text = f"container {self._container} has said nothing for {silence:.0f} s"
                self.leave(trouble.Trouble("lost", text))

    # from the session

    def _read(self) -> bytes | None:
        """Read one piece; ``None`` at the end."""
        head = self._inward.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return None
        return self._inward.read(*LENGTH.unpack(head))

    def _listen(self) -> None:
        """Keep what the session sends until it is wanted."""
        while (data := self._read()) is not None:
            self._said.put(data)
        self._gone.set()
        self._said.put(None)

    def _forward(self) -> None:
        """Hand on what the session sends; at its end, end the work."""
        splitter = Splitter()
        while (data := self._said.get()) is not None:
            for piece in splitter.split(data):
                self._deliver(piece)
        if not self._over.is_set():
            self.leave(GONE)

    def _deliver(self, piece: bytes) -> None:
        """Send a piece, until the service has taken it; without it nothing that follows counts."""
        began = time.monotonic()
        while (error := self._put(piece)) is not None and not self._over.wait(AGAIN):
            waited = time.monotonic() - began
            if waited > container.LEASE:
                what = f"container {self._container} could not be sent anything for {waited:.0f} s"
                self.leave(trouble.Trouble("lost", f"{what} ({error!r})"))

    def _put(self, message: bytes | str) -> Exception | None:
        """Send a message; give the error with which the service did not take it."""
        try:
            self._queue.put(message, partition=self._nonce)
        except Exception as error:  # noqa: BLE001 -- the border: whatever the SDK raises
            return error
        return None

    def _keep_alive(self) -> None:
        pause = container.EVERY
        while not self._over.wait(pause):
            pause = container.EVERY if self._put("alive") is None else AGAIN

    def _end_earlier(self, calls: list[list[str]]) -> None:
        """End calls of this session's whose courier was killed, before another is made.

        :param calls: of each the queue, the partition of that, the app's dict, and the call's id,
            which is empty where nobody has told it.
        """
        for of, nonce, claims, call in calls:
            with contextlib.suppress(Exception):  # its container gives up by itself, only later
                self._modal.Queue.from_name(of).put("stop", partition=nonce)
            with contextlib.suppress(Exception):  # none begins it, if none has
                found = self._modal.Dict.from_name(claims)
                found.put(nonce, container.WITHDRAWN, skip_if_exists=True)
            with contextlib.suppress(Exception):
                if call:
                    self._modal.FunctionCall.from_id(call).cancel()

    def leave(self, found: trouble.Trouble) -> NoReturn:
        """End the call and this process; whoever comes first says why, and others wait for that."""
        self._leaving.acquire()  # for good
        self._cancel()
        finish(found)

    def _cancel(self) -> None:
        """End the call, and its worker with it; a container that was there stays for the next one.

        An app that is there for this call alone ends with all that it has.
        """
        with self._asking:
            self._over.set()
        done: dict[str, Any] = {}
        ends: list[Callable[[], object]] = []
        if self._queue is not None:  # else no container has been asked for
            ends.append(lambda: self._put("stop"))
        if self._asks:
            ends += [lambda: self._end_call(done), lambda: self._withdraw(done)]
        ends.append(lambda: self._end_app(done))
        threads = [threading.Thread(target=end, daemon=True) for end in ends]
        deadline = time.monotonic() + ENDING
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        if self._asks:
            tell(left={"cancelled": False, "app": False, "containers": None, **done})

    def _end_call(self, done: dict[str, Any]) -> None:
        """Cancel the call; one that no container has taken is taken by none any more.

        :param done: is told what was done, and how many containers there are if none has greeted.
        """
        if self._refused:
            done.update(cancelled=True, containers=0)
            return
        with contextlib.suppress(Exception):  # then it is not known to have ended
            self._settled.wait()
            if self._call:
                self._modal.FunctionCall.from_id(self._call).cancel()
                done["cancelled"] = True
            if not self._heard.is_set():
                done["containers"] = self._function.get_current_stats().num_total_runners

    def _withdraw(self, done: dict[str, Any]) -> None:
        """Let no container begin the call, if none has: one that comes for it ends by itself.

        That holds for a call without an id as well, which can't be cancelled: the service still has
        it, and may start a container for it.
        """
        if self._heard.is_set() or self._refused:
            return
        with contextlib.suppress(Exception):  # then it is not known to have ended
            put = self._claims.put(self._nonce, container.WITHDRAWN, skip_if_exists=True)
            if put and self._settled.is_set() and not self._call:
                done.update(cancelled=True, withdrawn=True)

    def _end_app(self, done: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):  # it ends by itself, once this process is silent
            logging.getLogger("modal-client").setLevel(logging.ERROR)  # nobody misses its last logs
            self._until.close()
            done["app"] = True


def finish(found: trouble.Trouble) -> NoReturn:
    """End this process, whatever its threads do."""
    tell(end=found.kind, text=found.what, fix=found.fix, built="built" if found.built else "")
    os._exit(1)


def _meaning(modal: Any, error: Exception, during: str) -> trouble.Trouble:
    return trouble.of_error(modal, error, during=during, claimed=container.CLAIMED)


def _signed_in() -> Any:
    """Give the SDK, once the service has taken the token.

    :raises FailedError: where it does not.
    """
    try:
        modal = sdk.load()
        sdk.harden()
    except RemoteGpuError:
        raise
    except Exception as error:  # noqa: BLE001 -- the border: the SDK reads a file of the user's
        raise FailedError(signing.unusable(error)) from None
    found = signing.reach(modal) or signing.sign_in(modal)
    if found is not None:
        raise FailedError(found)
    return modal


def _tell_rates(modal: Any) -> None:
    """Tell what the workspace pays; where that can't be asked, nothing depends on it."""
    with contextlib.suppress(Exception):
        workspace = modal.Workspace.from_context()
        found = {name: str(usd) for name, usd in workspace.billing.rates().items()}
        tell(rates=found, workspace=workspace.name or "")


def main() -> int:
    """Serve one order, which is the first line on stdin.

    :return: the exit status.
    """
    outward = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    inward = sys.stdin.buffer
    courier: Courier | None = None
    try:
        modal = _signed_in()
        courier = Courier(modal, inward, outward)
        sdk.note_calls(courier.made, courier.kept)
        tell(ready=True)
        if RATES in sys.argv[1:]:
            threading.Thread(target=_tell_rates, args=(modal,), daemon=True).start()
        line = inward.readline()
        if line:
            courier.serve(json.loads(line))
    except FailedError as failed:
        if courier is not None:
            courier.leave(failed.trouble)
        finish(failed.trouble)
    except RemoteGpuError as error:
        finish(trouble.Trouble("usage", error.what, error.fix))
    outward.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
