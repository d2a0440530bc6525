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
import os
import signal
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

from pytest_remotegpu.backends.modal import container, deploying, sdk, signing, trouble
from pytest_remotegpu.errors import RemoteGpuError

__all__ = ["LENGTH", "MARK", "main"]

MARK: Final = "\x1e"
LENGTH: Final = struct.Struct("!Q")
"""Stands before each piece on stdin."""
RATES: Final = "--rates"
"""Has a courier tell what the workspace pays, beside its work."""
FOLDER: Final = "remotegpu-image-"
"""Begins the name of the folder for files that go into an image."""
PIECE: Final = 768 * 1024
"""Bytes of one message to a container; the service takes 1 MiB."""
ATTEMPTS: Final = 5
"""Times that a message is sent where the service does not take it."""
ENDING: Final = 3.0
"""Seconds to tell a container that it is not needed any more."""
HAD: Final = ("InternalFailure", "FunctionTimeoutError", "OutputExpiredError")
"""Errors of the SDK's that a call has only once a container was at it."""


class FailedError(Exception):
    """Ends the courier; ``trouble`` says how."""

    def __init__(self, found: trouble.Trouble) -> None:
        super().__init__(found.text)
        self.trouble = found


def tell(**what: Any) -> None:
    """Tell the session something."""
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
        self._nonce = ""
        self._over = threading.Event()
        self._heard = threading.Event()
        self._lock = threading.Lock()
        self._mark = b""
        self._last = 0.0
        self._writes = False
        self._number = 0

    def serve(self, order: dict[str, Any]) -> None:
        """Carry until the worker ends.

        :raises FailedError: where it does not end by itself.
        """
        self._nonce = order["nonce"]
        time.sleep(order["delay"])
        first = self._read()
        if first is None:
            return
        with contextlib.ExitStack() as until:
            self._serve(order, first, until)

    def _serve(self, order: dict[str, Any], first: bytes, until: contextlib.ExitStack) -> None:
        function = self._guarded("preparing the app", lambda: self._prepare(order, until))
        self._end_earlier(order["earlier"])
        request = {
            key: order[key] for key in ("nonce", "queue", "claims", "idle", "preload", "env")
        }
        since = time.time() - order["asked"] if order["asked"] else 0.0
        left = max(order["left"] - since, 1.0)
        line = json.dumps({**request, "seconds": left}).encode()
        for target in (self._forward, self._keep_alive):
            threading.Thread(target=target, daemon=True).start()
        self._guarded("starting a container", lambda: self._pass_on(function, line, first, order))
        self._over.set()

    def _prepare(self, order: dict[str, Any], until: contextlib.ExitStack) -> Any:
        """Give the function to call, while what else the call needs is looked up."""
        modal = self._modal
        self._queue = modal.Queue.from_name(order["queue"], create_if_missing=True)
        claims = modal.Dict.from_name(order["claims"], create_if_missing=True)
        with futures.ThreadPoolExecutor(2) as beside:
            lookups = [beside.submit(each.hydrate) for each in (self._queue, claims)]
            found = self._function(order, until)
            for lookup in lookups:
                lookup.result()
        return found

    def _function(self, order: dict[str, Any], until: contextlib.ExitStack) -> Any:
        modal = self._modal
        with tempfile.TemporaryDirectory(prefix=FOLDER) as folder:

            @contextlib.contextmanager
            def described() -> Iterator[Any]:
                # late, like what shows a build: few sessions deploy, and all wait for imports
                from pytest_remotegpu.backends.modal import image  # noqa: PLC0415 -- as above

                with modal.enable_output():
                    yield image.build(order["recipe"], modal, Path(folder), os.environ)

            if order["ephemeral"]:
                with described() as made:
                    return deploying.temporary(modal, order, made, until)
            found = deploying.prepared(modal, order, described, say)
            found.hydrate()  # which asks for the options of this run
            return found

    def _guarded(self, during: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except FailedError:
            raise
        except Exception as error:  # noqa: BLE001 -- the border: whatever the SDK raises
            during = f"container {self._container}" if self._container else during
            raise FailedError(_meaning(self._modal, error, during)) from None

    def _pass_on(self, function: Any, line: bytes, first: bytes, order: dict[str, Any]) -> None:
        patience = threading.Thread(target=self._wait_for_start, args=(order,), daemon=True)
        patience.start()
        tell(asked=True)
        try:
            for chunk in function.remote_gen(line + b"\n" + first):
                self._take(chunk)
        except Exception as error:
            kinds = tuple(getattr(self._modal.exception, name) for name in HAD)
            if isinstance(error, kinds) or container.CLAIMED in str(error):
                tell(gone=True)
            raise

    def _take(self, chunk: Any) -> None:
        if not isinstance(chunk, bytes) or len(chunk) < 13:  # noqa: PLR2004 -- kind, mark, number
            self._lose(f"a container sent {type(chunk).__name__}, which is no chunk")
        kind, mark, number, data = chunk[:1], chunk[1:9], chunk[9:13], chunk[13:]
        self._last = time.monotonic()
        self._mark = self._mark or mark
        self._number += 1
        if mark != self._mark or int.from_bytes(number, "big") != self._number:
            self._lose(
                f"the stream of container {self._container} was mended by another one or has a gap:"
                f" chunk {int.from_bytes(number, 'big')} came where {self._number} was due"
            )
        if kind == container.GREETING:
            self._heard.set()
            greeting = json.loads(data)
            self._call, self._container = str(greeting["call"]), str(greeting["container"])
            tell(container=self._container, call=self._call, age=greeting.get("age", 0.0))
        elif kind == container.DIAGNOSIS:
            tell(ended=data.decode("utf-8", "replace"))
        elif kind == container.DATA:
            self._writes = True  # a session that is stopped reads nothing, for as long as it likes
            self._outward.write(data)
            self._outward.flush()
            self._last, self._writes = time.monotonic(), False

    def _lose(self, text: str) -> NoReturn:
        self.cancel()
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
                fix = (
                    f"Modal has none free, or all {order['workers']} containers are at work that "
                    "sessions with this environment and card may have at once: name further "
                    f"cards, such as modal:{card},L4, or wait longer"
                )
                self._leave(trouble.Trouble("infra", what, fix))
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
                self._leave(trouble.Trouble("lost", text))

    def _leave(self, found: trouble.Trouble) -> None:
        self.cancel()
        finish(found)

    # from the session

    def _read(self) -> bytes | None:
        """Read one piece; ``None`` at the end."""
        head = self._inward.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return None
        return self._inward.read(*LENGTH.unpack(head))

    def _forward(self) -> None:
        """Hand on what the session sends; at its end, end the work."""
        while (data := self._read()) is not None:
            for at in range(0, len(data), PIECE):
                self._put(data[at : at + PIECE])
        if not self._over.is_set():
            self._leave(trouble.Trouble("lost", "the session is gone"))

    def _put(self, message: bytes | str) -> None:
        last = ""
        with self._lock:
            for attempt in range(ATTEMPTS):
                try:
                    self._queue.put(message, partition=self._nonce)
                except Exception as error:  # noqa: BLE001 -- the border: whatever the SDK raises
                    last = repr(error)
                    self._over.wait(0.2 * 2**attempt)
                else:
                    return
        sys.stderr.write(f"not delivered to the container: {last}\n")

    def _keep_alive(self) -> None:
        while not self._over.wait(container.EVERY):
            self._put("alive")

    def _end_earlier(self, calls: list[list[str]]) -> None:
        """End calls of this session's whose courier was killed, before another is made.

        :param calls: of each the queue, the partition of that, and the call's id.
        """
        for queue, nonce, call in calls:
            with contextlib.suppress(Exception):  # its container gives up by itself, only later
                self._modal.Queue.from_name(queue).put("stop", partition=nonce)
            with contextlib.suppress(Exception):
                self._modal.FunctionCall.from_id(call).cancel()

    def cancel(self) -> None:
        """End the call, and its worker with it; the container stays for the next one."""
        self._over.set()
        threads = []
        if self._queue is not None:  # else no container has been asked for
            threads.append(threading.Thread(target=self._put, args=("stop",), daemon=True))
        if self._call:
            call = self._modal.FunctionCall.from_id(self._call)
            threads.append(threading.Thread(target=call.cancel, daemon=True))
        deadline = time.monotonic() + ENDING
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0.0))


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
        tell(ready=True)
        if RATES in sys.argv[1:]:
            threading.Thread(target=_tell_rates, args=(modal,), daemon=True).start()
        line = inward.readline()
        if line:
            courier.serve(json.loads(line))
    except FailedError as failed:
        if courier is not None:
            courier.cancel()
        finish(failed.trouble)
    except RemoteGpuError as error:
        finish(trouble.Trouble("usage", error.what, error.fix))
    outward.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
