"""What there has to be before a container can be asked for, which may take minutes to build.

Runs in the courier's process, in its main thread; another one looks meanwhile whether anybody waits
for it.
"""

from __future__ import annotations

import contextlib
import os
import select
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any, BinaryIO, Final

from pytest_remotegpu.backends.modal import deploying, sdk, sweeping

__all__ = ["Preparing", "watched"]

FOLDER: Final = "remotegpu-image-"
"""Begins the name of the folder for files that go into an image."""
LOOK: Final = 500
"""Milliseconds between two looks whether it is over."""


class Preparing:
    """Looks up or makes what a call needs.

    :param tell: tells the session something. :param until: ends an app that is the session's own.
    :ivar queue: brings what the session sends to the container. :ivar claims: says who has a call.
    """

    def __init__(
        self,
        modal: Any,
        order: Mapping[str, Any],
        tell: Callable[..., None],
        until: contextlib.ExitStack,
    ) -> None:
        self._modal, self._order = modal, order
        self._tell, self._until = tell, until
        self._held = contextlib.ExitStack()
        self._builds = False
        self.queue = modal.Queue.from_name(order["queue"], create_if_missing=True)
        self.claims = modal.Dict.from_name(order["claims"], create_if_missing=True)

    def run(self) -> Any:
        """Give the function to call, while what else the call needs is looked up."""
        with futures.ThreadPoolExecutor(2) as beside, self._held:
            lookups = [beside.submit(each.hydrate) for each in (self.queue, self.claims)]
            found = self._found()
            for lookup in lookups:
                lookup.result()
        return found

    def break_off(self) -> None:
        """Say what stays of it, and leave nothing on this host; the process ends next."""
        if self._builds:
            self._tell(
                say=f"{self._order['app']} was still being built: no machine is rented, and what "
                "Modal goes on to build of the image is kept there for the next session"
            )
        self._held.close()

    def _found(self) -> Any:
        modal, order = self._modal, self._order
        if order["ephemeral"]:
            deploying.check(order)
            with self._described(deploying.why(order)) as made:
                app, found = deploying.temporary(modal, order, made, self._until, _break_off)
            self._show_page(app.get_dashboard_url())
            return found
        found = deploying.prepared(modal, order, self._described, self._say, self._held)
        if order["shows"]:
            deploying.show(modal, order["app"], self._show_page)
        found.hydrate()  # which asks for the options of this run
        return found

    def _show_page(self, page: str) -> None:
        self._tell(say=f"{self._order['app']} is shown at {page}", page=page)

    def _say(self, text: str) -> None:
        self._tell(say=text)

    @contextlib.contextmanager
    def _described(self, why: str) -> Iterator[Any]:
        # late, like what shows a build: few sessions deploy, and all wait for imports
        from pytest_remotegpu.backends.modal import image  # noqa: PLC0415 -- as above

        folder = self._held.enter_context(tempfile.TemporaryDirectory(prefix=FOLDER))
        sdk.outlive_readers()
        self._builds = True
        self._tell(builds=why)
        with self._modal.enable_output():
            yield image.build(self._order["recipe"], self._modal, Path(folder), os.environ)
        self._tell(builds="")
        self._builds = False


def _break_off(app: Any) -> None:
    if app.app_id:
        sweeping.stop(app)


@contextlib.contextmanager
def watched(stream: BinaryIO, gone: threading.Event, act: Callable[[], None]) -> Iterator[None]:
    """Do something in a thread as soon as nobody has the other end of a pipe any more.

    Be it that what came through it before is not read yet.

    :param gone: set once all of it has been read, which tells where the pipe itself can't.
    """
    over = threading.Event()
    threading.Thread(target=_watch, args=(stream, gone, over, act), daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _watch(
    stream: BinaryIO, gone: threading.Event, over: threading.Event, act: Callable[[], None]
) -> None:
    poll = select.poll() if hasattr(select, "poll") else None
    if poll is not None:
        poll.register(stream.fileno(), 0)  # which asks for its end alone
    while not over.is_set():
        ended = bool(poll.poll(LOOK)) if poll is not None else gone.wait(LOOK / 1000)
        if ended and not over.is_set():
            act()
            return
