"""The worker's first process: owns the channel, starts runners, says how they end.

Imports neither torch nor pytest nor the user's code, so that no test can take it down. It opens no
payload; it reads the order's header and what runners say of their progress.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket as sockets
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from pytest_remotegpu import gpu
from pytest_remotegpu.errors import FarSideError, RemoteGpuError
from pytest_remotegpu.protocol import events, frames, orders
from pytest_remotegpu.protocol.hello import Hello, differences
from pytest_remotegpu.protocol.plain import to_text
from pytest_remotegpu.worker import artifacts, process, start
from pytest_remotegpu.worker.run import RunnerHandle
from pytest_remotegpu.worker.source import Source

__all__ = ["Supervisor", "serve"]

PRETEND: Final = "PYTEST_REMOTEGPU_PRETEND_GPUS"
COALESCE: Final = 0.004
"""Seconds to let a busy runner write on before its events are passed on together."""
IDLE_CRASHES: Final = 2
"""Runners in a row that may end without having begun a test."""
EXIT_GRACE: Final = 5.0
"""Seconds that a finished runner has for its exit handlers."""


class Supervisor:
    """Serves one order on two descriptors.

    :param inward: the descriptor that messages come from.
    :param outward: the one that frames go to.
    :param spawn: whether runners are spawned where they could be forked.
    """

    def __init__(
        self, inward: int, outward: int, starter: start.Forking | start.Spawning, scratch: str
    ) -> None:
        self._inward, self._outward = inward, outward
        self._messages = frames.Frames(frames.MAX_OUTBOUND)
        self._scratch = scratch
        self._starter = starter
        self._selector = selectors.DefaultSelector()
        self._greeted = False
        self._order: orders.Order | None = None
        self._source: Source | None = None
        self._runner: RunnerHandle | None = None
        self._run = orders.Run(0, 0)
        self._sent = 0
        self._idle_crashes = 0
        self._finishing = False
        self._stretch_open = False
        self._stop_at: float | None = None
        self._exit_by: float | None = None
        self._ending = False
        self._failures_before = 0
        self._pretend, self._devices = _devices()

    # the outer loop

    def serve(self) -> None:
        """Greet, then serve until the order is done or the user's side is gone."""
        try:
            self._selector.register(self._inward, selectors.EVENT_READ, self._read_messages)
        except PermissionError:
            raise FarSideError(
                "stdin is a file; a worker is spoken to through a pipe or a socket"
            ) from None
        hello = Hello.here(
            gpus=tuple(self._devices), pretend=self._pretend, host=sockets.gethostname()
        )
        self._hello = hello
        self._write(frames.frame(hello.encode()))
        self._selector.register(self._starter.socket, selectors.EVENT_READ, self._read_starter)
        _sweep()
        while not self._ending:
            self._turn()

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._patience()):
            key.data()
            if self._ending:
                return
        if self._starter.pid == 0:
            self._read_starter()
        now = time.monotonic()
        if self._stop_at is not None and now >= self._stop_at:
            self._finish("stopped")
        elif self._exit_by is not None and now >= self._exit_by:
            self._exit_by = None
            self._kill_runner()

    def _patience(self) -> float | None:
        times = [moment for moment in (self._stop_at, self._exit_by) if moment is not None]
        if times:
            return max(min(times) - time.monotonic(), 0.0)
        return 0.02 if self._starter.pid == 0 else None

    def close(self) -> None:
        """End every process and remove every folder of this worker."""
        self._starter.close()
        process.end_tree()
        if self._runner is not None:
            self._runner.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    # towards the user's side

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._outward, view) :]
        except OSError:
            self._ending = True

    def _emit(self, *said: events.Event) -> None:
        self._pass_on(frames.encode_events(list(said)), len(said))

    def _pass_on(self, encoded: bytes | msgspec.Raw, count: int) -> None:
        assert self._order is not None
        self._write(frames.encode_frame(self._order.worker, self._order.nonce, self._sent, encoded))
        self._sent += count

    def _finish(self, text: str = "") -> None:
        if self._order is not None and not self._ending:
            self._emit(events.Ended(to_text(text)))
        self._ending = True

    # from the user's side

    def _read_messages(self) -> None:
        chunk = os.read(self._inward, 2**20)
        if not chunk:
            self._ending = True
            return
        for body in self._messages.feed(chunk):
            if self._greeted:
                self._take(frames.read_message(body))
            elif differences(Hello.decode(body), self._hello):
                self._ending = True
            self._greeted = True
            if self._ending:
                return

    def _take(self, message: Any) -> None:
        match message:
            case orders.Order():
                self._take_order(message)
            case orders.Run():
                self._take_run(message)
            case orders.Blob() if self._source is not None:
                self._source.put(message)
                self._begin_when_complete()
            case orders.Values() if self._runner is not None:
                self._runner.send(message)
            case orders.Finish():
                self._finishing = True
                if not self._stretch_open:
                    self._finish_runner()
            case orders.Stop():
                self._stop(message.grace)

    def _take_order(self, order: orders.Order) -> None:
        self._order, self._run = order, order.run
        self._starter.keep_out(order.root if order.tree is None else "")
        self._stretch_open = True
        available = len(self._devices) if self._pretend is None else self._pretend
        if order.gpus > available:
            text = f"{gpu.Shape(order.gpus)} asked for and this host has {available}"
            self._emit(events.StartFailed(to_text(text)))
            self._finish()
            return
        if order.tree is not None:
            name = Path(order.root).name or "root"
            self._source = Source(
                Path(self._scratch, "tree", name), Path(self._scratch, "store"), order.tree
            )
            missing = self._source.missing()
            if missing:
                self._emit(events.Need(missing))
        self._begin_when_complete()

    def _begin_when_complete(self) -> None:
        if self._source is None:
            self._start_runner()
        elif not self._source.missing():
            self._source.build()
            self._start_runner()

    def _take_run(self, run: orders.Run) -> None:
        self._run = run
        self._stretch_open = True
        self._failures_before = self._runner.failures if self._runner is not None else 0
        if self._runner is None:
            self._start_runner()
        else:
            self._runner.send(run)

    def _stop(self, grace: float) -> None:
        if self._runner is None or grace <= 0:
            self._finish("stopped")
            return
        self._stop_at = time.monotonic() + grace
        self._finishing = True
        self._runner.send(orders.Stop(grace))
        if self._runner.pid and self._runner.current >= 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._runner.pid, signal.SIGINT)

    def _finish_runner(self) -> None:
        if self._runner is None:
            self._finish()
        else:
            self._runner.send(orders.Finish())

    # the runner

    def _start_runner(self) -> None:
        runner = self._runner = RunnerHandle()
        self._failures_before = 0
        runner.send(self._order_for_runner())
        self._selector.register(runner.channel, selectors.EVENT_READ, self._read_runner)
        for fd in runner.outputs:
            self._selector.register(fd, selectors.EVENT_READ, self._read_runner_first)
        pid = self._starter.start(runner.ends)
        if pid:
            runner.started(pid)

    def _order_for_runner(self) -> orders.Order:
        order = self._order
        assert order is not None
        root = str(self._source.root) if self._source is not None else order.root
        site = orders.Site(
            devices=self._visible(order.gpus),
            pretend=self._pretend,
            artifacts=str(Path(self._scratch, "artifacts")),
            root=root,
        )
        given = order.options
        moved = {
            name: [_moved(text, order.root, root) for text in getattr(given, name)]
            for name in ("args", "files", "sys_path")
        }
        options = msgspec.structs.replace(given, **moved)
        cwd = str(Path(root, order.cwd))
        return msgspec.structs.replace(
            order, options=options, site=site, cwd=cwd, tree=None, run=self._run
        )

    def _visible(self, count: int) -> str | None:
        """Give what ``CUDA_VISIBLE_DEVICES`` is to be; ``None`` where it stays as it is."""
        if self._pretend is not None:
            return ""
        return ",".join(self._devices[:count]) if count else None

    def _read_starter(self) -> None:
        for said in self._starter.read():
            if said is None:
                self._lost()
                return
            if isinstance(said, start.End):
                self._ended(said)
            elif self._runner is not None:
                self._runner.started(said)

    def _read_runner(self) -> None:
        runner = self._runner
        if runner is None:
            return
        time.sleep(COALESCE)
        batches = runner.read()
        self._read_outputs()
        for batch in batches:
            self._pass_batch(batch)
        if runner.broken:
            self._kill_runner()
        if runner.closed:
            self._unregister(runner.channel)

    def _read_runner_first(self) -> None:
        """Read events before output: what a crash leaves on a pipe is of the test that began."""
        self._read_runner()
        self._read_outputs()

    def _pass_batch(self, batch: events.Batch) -> None:
        encoded = batch.events
        if batch.count:
            self._pass_on(encoded, batch.count)
        if batch.waits and self._runner is not None:
            self._runner.send(orders.Shown())
        if batch.stretch_ended:
            self._stretch_open = False
            if self._finishing and self._runner is not None:
                self._runner.send(orders.Finish())
        if batch.current in {events.OVER, events.FAILED} and self._runner is not None:
            self._exit_by = time.monotonic() + EXIT_GRACE
            if batch.current == events.FAILED:
                said = b"".join(tail.take() for tail in self._runner.tails.values())
                self._emit(events.StartFailed(to_text(said.decode("utf-8", "replace")), usage=True))

    def _read_outputs(self) -> None:
        if self._runner is None:
            return
        for fd, stream in list(self._runner.outputs.items()):
            data = self._runner.read_output(fd)
            if data and self._order is not None and self._order.options.live:
                for at in range(0, len(data), 2**20):
                    self._emit(events.Live(stream, data[at : at + 2**20]))
            elif not data and self._runner.closed:
                self._unregister(fd)

    def _unregister(self, fileobj: Any) -> None:
        if fileobj in self._selector.get_map():
            self._selector.unregister(fileobj)

    def _kill_runner(self) -> None:
        if self._runner is not None and self._runner.pid:
            with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
                os.kill(self._runner.pid, signal.SIGKILL)

    def _ended(self, end: start.End) -> None:
        """Handle the end of a runner: its last words, its leftovers, and what comes next."""
        runner = self._runner
        if runner is None or runner.pid not in (0, end.pid):
            return
        self._drain(runner)
        process.end_tree(keep=(self._starter.pid,))
        if self._ending:
            return
        self._exit_by = None
        if not runner.over:
            self._judge(runner, end)
        self._runner = None
        runner.close()
        self._go_on(runner)

    def _drain(self, runner: RunnerHandle) -> None:
        while batches := runner.read():
            self._read_outputs()
            for batch in batches:
                self._pass_batch(batch)
        self._read_outputs()
        for fileobj in (runner.channel, *runner.outputs):
            self._unregister(fileobj)

    def _judge(self, runner: RunnerHandle, end: start.End) -> None:
        """Say what the unforeseen end of a runner means."""
        if runner.current >= 0:
            assert self._order is not None
            base = str(Path(self._scratch, "artifacts"))
            found = artifacts.collect(base, runner.current, self._order.max_artifact)
            self._emit(*found, runner.crash(end.status, end.peak_rss_kib))
            runner.failures += 1
            runner.following = runner.current + 1
            self._idle_crashes = 0
            return
        if self._finishing and not self._stretch_open:
            text = f"it did not come to its end: {runner.crash(end.status, end.peak_rss_kib).cause}"
            if self._stop_at is None:
                self._emit(events.SessionEnded(1, to_text(text)))
            return
        self._idle_crashes = 0 if runner.progressed else self._idle_crashes + 1
        if self._idle_crashes >= IDLE_CRASHES:
            crash = runner.crash(end.status, end.peak_rss_kib)
            text = f"{crash.cause}, before a test began".replace(" while the test ran", "")
            stack = crash.stack.decode("utf-8", "replace")
            self._emit(events.StartFailed(to_text(f"{text}\n{stack}")))
            self._stretch_open = False

    def _go_on(self, runner: RunnerHandle) -> None:
        """After a runner's end: the rest of the stretch in a new one, or the end of it all."""
        if self._stop_at is not None:
            self._finish("stopped")
            return
        if self._stretch_open and not runner.over:
            spent = runner.failures - self._failures_before
            left = self._run.failures - spent if self._run.failures else 0
            first = max(runner.following, self._run.first)
            if first < self._run.last and (left > 0 or not self._run.failures):
                self._run = orders.Run(first, self._run.last, max(left, 0))
                self._start_runner()
                return
            self._stretch_open = False
            self._emit(
                events.StretchEnded(
                    to_text("" if first >= self._run.last else "stopping after failures")
                )
            )
        if self._finishing or runner.over or self._idle_crashes >= IDLE_CRASHES:
            self._finish()

    def _lost(self) -> None:
        """End without a word of farewell: the user's side then takes this worker for lost."""
        if self._runner is not None:
            self._drain(self._runner)
        self._ending = True


def _sweep() -> None:
    """Take away what workers of this user left that were killed before they could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{process.PREFIX}[0-9]*-*"):
        owner = folder.name.removeprefix(process.PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            mine = folder.stat().st_uid == os.getuid() and not folder.is_symlink()
            if mine and owner.isdecimal() and not process.exists(int(owner)):
                shutil.rmtree(folder, ignore_errors=True)


def _moved(text: str, root: str, here: str) -> str:
    """Name a path of the user's side by its place on this one.

    :param text: the path, or an option with the path in it.
    """
    if root == here or root not in text:
        return text
    before, _, rest = text.partition(root)
    fits = (not before or before[-1] in "=,:") and (not rest or rest[0] in "/:,")
    return f"{before}{here}{rest}" if fits else text


def _devices() -> tuple[int | None, list[str]]:
    """Give the number of pretend GPUs, if any are, and the devices that are there."""
    pretend = os.environ.pop(PRETEND, "")
    if pretend.isdecimal():
        return int(pretend), []
    return None, gpu.visible_devices(os.environ)


def serve(inward: int, outward: int, starter: start.Forking | start.Spawning, scratch: str) -> int:
    """Serve one order on two descriptors, and leave nothing behind.

    :param starter: starts the runners. :param scratch: this process's folder, removed at the end.
    :return: the exit status.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervisor = Supervisor(inward, outward, starter, scratch)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        supervisor.serve()
    except RemoteGpuError as error:
        sys.stderr.write(f"pytest_remotegpu.worker: {error}\n")
        return 1
    finally:
        supervisor.close()
    return 0
