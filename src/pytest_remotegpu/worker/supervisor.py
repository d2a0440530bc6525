"""The worker's first process: owns the channel, starts runners, says how they end.

Imports neither torch nor pytest nor the user's code, so that no test can take it down. It opens no
payload; it reads the order's header and what runners say of their progress.
"""

from __future__ import annotations

import selectors
import time
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu import leftovers
from pytest_remotegpu.errors import FarSideError, RemoteGpuError
from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.protocol.plain import to_text
from pytest_remotegpu.worker import process, site, sources, start, watch
from pytest_remotegpu.worker.client import Client
from pytest_remotegpu.worker.desk import Desk
from pytest_remotegpu.worker.early import Early
from pytest_remotegpu.worker.hold import POLL, Hold
from pytest_remotegpu.worker.restarts import Restarts
from pytest_remotegpu.worker.run import RunnerHandle, live
from pytest_remotegpu.worker.stretches import Stretches
from pytest_remotegpu.worker.watch import Watch

__all__ = ["Supervisor"]

AT_REST: Final = 0.05
"""Seconds for which a worker that has nothing to do keeps cards that others wait for."""


class Supervisor:
    """Serves one order on two descriptors.

    :param inward: the descriptor that messages come from.
    :param outward: the one that frames go to.
    :param starter: starts the runners.
    :param scratch: a folder of this worker's own.
    """

    def __init__(
        self, inward: int, outward: int, starter: start.Zygote | start.Spawning, scratch: str
    ) -> None:
        self._pretend, self._cards = site.look()
        self._client = Client(inward, outward, site.hello(self._pretend, self._cards))
        self._emit = self._client.emit
        self._scratch, self._kept = scratch, str(Path(scratch, "artifacts"))
        self._starter = starter
        self._selector = selectors.DefaultSelector()
        self._desk = Desk(self._selector, self._emit, before=self._read_runner)
        self._order: orders.Order | None = None
        self._source: sources.Sources | None = None
        self._runner: RunnerHandle | None = None
        self._stretches = Stretches()
        self._restarts = Restarts()
        self._stop_at: float | None = None
        self._hold: Hold | None = None
        self._finishing = self._wants_runner = self._gives_way = False
        self._idle_since = self._asked_at = 0.0
        self._watch = Watch(orders.Limits())
        self._early = Early(self._kept, 0, self._emit)
        self._limit = ""

    # the outer loop

    def serve(self) -> None:
        """Greet, then serve until the order is done or the user's side is gone."""
        try:
            self._selector.register(self._client.inward, selectors.EVENT_READ, self._read_messages)
        except PermissionError:
            raise FarSideError(
                "stdin is a file; a worker is spoken to through a pipe or a socket"
            ) from None
        self._client.greet()
        self._selector.register(self._starter.socket, selectors.EVENT_READ, self._read_starter)
        site.sweep()
        while not self._ending:
            self._turn()

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._patience()):
            key.data()
            if self._ending:
                return
        if self._starter.polls:
            self._read_starter()
        if self._stop_at is not None and time.monotonic() >= self._stop_at:
            self._finish("stopped" if self._runner is None else events.CUT_SHORT)
        else:
            self._keep_time()
            self._keep_cards()
            self._early.turn(-1 if self._runner is None else self._runner.current)

    def _patience(self) -> float | None:
        times = [0.02] if self._starter.polls else []
        if self._stop_at is not None:
            times.append(max(self._stop_at - time.monotonic(), 0.0))
        if self._runner is not None:
            both = self._watch.patience(), self._early.patience()
            times += [left for left in both if left is not None]
        if self._wants_runner or self._at_rest():
            times.append(POLL)
        return min(times, default=None)

    def _keep_time(self) -> None:
        """End a runner that has reached a limit, after a look at what it does."""
        runner = self._runner
        if runner is None or not runner.pid:
            return
        if runner.late:
            if not runner.doomed and self._watch.has_looked(runner.stacks):
                runner.doomed = True
                runner.offspring = watch.offspring(runner.pid)
                runner.kill()
        elif self._watch.is_due():
            watch.freeze(runner.pid)
            self._read_runner()  # what has come meanwhile may be the end of what took so long
            if self._watch.is_due():
                self._be_late(runner, self._watch.text())
            else:
                watch.thaw(runner.pid)

    def _be_late(self, runner: RunnerHandle, why: str) -> None:
        """Settle that a runner ends for a limit; its stacks are all that it still has to say."""
        runner.late = why
        runner.keep_captured()
        self._watch.look(runner.pid, runner.stacks)

    def _at_rest(self) -> bool:
        """Say whether a runner is there for which nothing is to do."""
        return self._runner is not None and not self._stretches.open and not self._finishing

    def _keep_cards(self) -> None:
        """Go on trying to have cards, or give them up for those who wait while they lie idle."""
        if self._wants_runner:
            self._try_start()
        elif self._at_rest() and self._hold is not None and not self._gives_way:
            rested = time.monotonic() - self._idle_since > AT_REST
            if rested and self._hold.in_the_way(idle=True):
                self._give_way()

    def _give_way(self) -> None:
        """End the runner in good order; the cards are free once it has ended."""
        self._gives_way = True
        self._watch.enter("end")
        if self._runner is not None:
            self._runner.send(orders.Finish())

    def close(self) -> None:
        """End every process and remove every folder of this worker."""
        self._desk.close()
        self._starter.close()
        process.end_tree(of=(self._starter.pid,) if self._starter.pid else ())
        if self._runner is not None:
            self._runner.close()
        if self._hold is not None:
            self._hold.close()
        if self._source is not None:
            self._source.close()
        leftovers.remove(self._scratch)

    # towards the user's side

    def _finish(self, text: str = "") -> None:
        self._client.finish(text)

    @property
    def _ending(self) -> bool:
        return self._client.over

    # from the user's side

    def _read_messages(self) -> None:
        for message in self._client.read():
            if not self._ending:
                self._take(message)

    def _take(self, message: Any) -> None:
        match message:
            case orders.Order():
                self._take_order(message)
            case orders.Run() if not self._stretches.open:
                self._begin(message)
            case orders.Run() | orders.Follows() | orders.Withdraw():
                self._change(message)
            case orders.Blob() | orders.Pack() if self._source is not None:
                self._begin_when_complete(message)
            case orders.Keys() | orders.Window() | orders.Values() | orders.Interrupt():
                self._hand_on(message)
            case orders.Chosen() if self._order is not None:
                self._client.order = self._order = site.chosen(self._order, message)
                self._watch = Watch.of(self._order, "idle")
                if self._runner is not None:
                    self._runner.send(message)
            case orders.Finish():
                self._finishing = True
                self._finish_runner()
            case orders.Stop():
                self._stop(message)

    def _hand_on(self, message: Any) -> None:
        """Give the runner what is for it alone."""
        if isinstance(message, orders.Keys | orders.Window):
            self._desk.take(message)
        elif self._runner is not None:
            self._runner.take(message)

    def _take_order(self, order: orders.Order) -> None:
        self._client.order = self._order = order
        self._stretches.begin(order.run)
        self._starter.keep_out(order.root if order.tree is None else "")
        self._watch = Watch.of(order)
        self._early = Early(self._kept, order.max_artifact, self._emit)
        try:
            self._hold = Hold(order, self._cards, self._pretend, self._emit)
        except FarSideError as error:
            self._refuse(str(error))
            return
        self._begin_when_complete()

    def _refuse(self, text: str) -> None:
        self._emit(events.StartFailed(to_text(text)))
        self._finish()

    def _begin_when_complete(self, *came: orders.Blob | orders.Pack) -> None:
        try:
            if self._source is None:
                self._source = sources.of(self._order, self._scratch)
            if self._source is not None and not self._source.go_on(self._emit, *came):
                return
        except (OSError, RemoteGpuError) as error:
            self._refuse(f"the project's files can't be laid out there: {error}")
        else:
            self._start_runner()

    def _change(self, message: orders.Run | orders.Follows | orders.Withdraw) -> None:
        """Take in what becomes of the stretches; the runner is told what concerns its own."""
        taken, told = self._stretches.change(message)
        if taken:
            self._emit(*taken)
        if self._wants_runner and isinstance(told, orders.Withdraw) and told.running:
            self._wants_runner = False
            self._end_stretch("")
        elif told is not None and self._runner is not None:
            self._runner.send(told)

    def _end_stretch(self, reason: str) -> None:
        """Say that a stretch has ended that no runner could end, and go on to the next one."""
        self._emit(events.StretchEnded(to_text(reason)))
        self._next_stretch()

    def _next_stretch(self) -> None:
        self._idle_since = time.monotonic()
        if run := self._stretches.end():
            self._begin(run)

    def _begin(self, run: orders.Run) -> None:
        self._stretches.begin(run)
        self._stretches.count_from(self._runner.failures if self._runner is not None else 0)
        if self._runner is None:
            self._start_runner()
        elif self._runner.spoilt:
            self._runner.following = run.first  # it is on its way out; the next one takes the run
        elif self._gives_way or (self._hold is not None and self._hold.in_the_way(idle=False)):
            if not self._gives_way:
                self._give_way()
        else:
            self._runner.following = run.first
            self._runner.send(run)

    def _stop(self, stop: orders.Stop) -> None:
        runner, grace = self._runner, stop.grace
        if stop.limit and runner is not None and runner.pid and runner.current >= 0:
            self._limit = stop.limit
            watch.freeze(runner.pid)
            self._be_late(runner, f"timed out: {stop.limit}")
            return
        if self._runner is None or grace <= 0 or self._desk.taken:  # at its prompt it hears nothing
            self._finish("stopped")
            return
        self._stop_at = time.monotonic() + grace
        self._finishing = True
        self._stretches.change(orders.Withdraw())
        self._runner.send(orders.Stop(grace))
        self._runner.interrupt()

    def _finish_runner(self) -> None:
        if self._stretches.open:
            return
        if self._runner is None:
            self._finish()
        elif not self._gives_way:
            self._watch.enter("end")
            self._runner.send(orders.Finish())

    # the runner

    def _start_runner(self) -> None:
        """Start a runner, as soon as its cards are there."""
        self._wants_runner = True
        self._try_start()

    def _try_start(self) -> None:
        assert self._hold is not None
        try:
            if not self._hold.ready():
                return
        except FarSideError as error:
            self._wants_runner = False
            self._refuse(str(error))
            return
        self._wants_runner = False
        runner = self._runner = RunnerHandle(process.nameless_file("stacks"))
        self._stretches.count_from(0)
        self._asked_at = time.monotonic()
        self._watch.enter("start")
        runner.send(self._order_for_runner(self._hold))
        self._selector.register(runner.channel, selectors.EVENT_READ, self._read_runner)
        for fd in runner.outputs:
            self._selector.register(fd, selectors.EVENT_READ, self._read_runner_first)
        locks = [*self._hold.locks, *sources.locks(self._source)]
        if pid := self._starter.start(runner.ends, locks):
            runner.started(pid)

    def _order_for_runner(self, hold: Hold) -> orders.Order:
        order = self._order
        assert order is not None
        there = orders.Site(
            devices=hold.visible(),
            pretend=self._pretend,
            artifacts=self._kept,
            caches=hold.caches(),
            terminal=self._desk.set_up(order.options),
            barred=self._restarts.barred,
            attempts=self._restarts.attempts,
        )
        folders = sources.folders(self._source, order.root)
        return site.for_runner(order, self._stretches.run, there, *folders)

    def _read_starter(self) -> None:
        for said in self._starter.read():
            if said is None:
                self._lost()
                return
            if isinstance(said, start.End):
                self._ended(said)
            elif self._runner is not None:
                self._runner.started(said)
                self._emit(events.Phases([("process", time.monotonic() - self._asked_at)]))

    def _read_runner(self) -> None:
        if (runner := self._runner) is None:
            return
        batches = runner.hear()
        self._read_outputs()
        for batch in batches:
            self._pass_batch(batch)
        if batches and not runner.late:
            last = (self._finishing and not self._stretches.open) or self._gives_way
            self._watch.follow(runner, last=last)
        if runner.broken:
            runner.kill()
        if runner.closed:
            self._unregister(runner.channel)
        more = self._stretches.open or self._gives_way or self._limit or self._stop_at
        if runner.done and self._finishing and not more:
            self._drain(runner)
            self._finish()  # what the kernel has left to do for it is waited for at the very end

    def _read_runner_first(self) -> None:
        """Read events before output: what a crash leaves on a pipe is of the test that began."""
        self._read_runner()
        self._read_outputs()

    def _pass_batch(self, batch: events.Batch) -> None:
        if self._runner is None or self._runner.late:
            return
        if batch.count:
            self._client.pass_on(batch.events, batch.count)
        self._desk.follow(debugs=batch.debugs, place=batch.current)
        if batch.waits:
            self._early.settle()
            self._runner.send(orders.Shown())
        if batch.stretch_ended:
            self._next_stretch()
            if self._finishing and not self._stretches.open and self._runner is not None:
                self._runner.send(orders.Finish())
        if batch.current == events.FAILED and self._runner is not None:
            self._emit(self._runner.last_words())

    def _read_outputs(self) -> None:
        if self._runner is None:
            return
        for fd, stream in list(self._runner.outputs.items()):
            data = self._runner.read_output(fd)
            if data and self._order is not None and self._order.options.live:
                self._emit(*live(stream, data))
            elif not data and self._runner.closed:
                self._unregister(fd)

    def _unregister(self, fileobj: Any) -> None:
        if fileobj in self._selector.get_map():
            self._selector.unregister(fileobj)

    def _ended(self, end: start.End) -> None:
        """Handle the end of a runner: its last words, its leftovers, and what comes next."""
        runner = self._runner
        if runner is None or runner.pid not in (0, end.pid):
            return
        self._drain(runner)
        self._desk.end()
        process.end_tree(keep=(self._starter.pid,), of=(self._starter.pid,))
        leftovers.free_shared(self._scratch)
        if self._ending:
            return
        if not runner.over:
            self._judge(runner, end)
        elif runner.late:
            self._emit(events.Note(to_text(f"{runner.late}, and was cut short")))
        elif end.status:  # a lost context may take its process along, and has failed a test already
            self._emit(runner.told_end(*end.how, "after its last test", failed=not runner.excused))
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
            left = self._early.rest(runner.current)
            most = {} if self._order is None or self._limit else self._order.limits.again
            crash = self._restarts.tried(runner.crash(*end.how), runner.attempt, most)
            self._emit(*left, crash)
            runner.failures += not crash.again
            runner.following = runner.current + (not crash.again)
            self._restarts.progressed()
            return
        if runner.spoilt or self._gives_way or (self._finishing and not self._stretches.open):
            if self._stop_at is None:
                self._emit(runner.told_end(*end.how, "it did not come to its end:"))
            return
        if runner.progressed:
            self._restarts.progressed()
            failed = process.is_own_doing(end.status)
            self._emit(runner.told_end(*end.how, "while no test ran,", failed=failed))
            return
        why = to_text(runner.unborn(end.status, end.peak_rss_kib))
        if self._restarts.blame(runner.collecting, why, surely=bool(runner.late)):
            self._emit(events.Note(why.partition(b"\n")[0]))
        else:
            self._emit(events.StartFailed(why))
            self._stretches.open = False
            self._finishing = True

    def _go_on(self, runner: RunnerHandle) -> None:
        """After a runner's end: the rest of the stretch in a new one, or the end of it all."""
        if self._stop_at is not None or self._limit:
            self._finish("stopped")
            return
        if self._gives_way:
            self._gives_way = False
            if self._hold is not None:
                self._hold.give_back()
            if self._stretches.open:
                self._start_runner()
            elif self._finishing:
                self._finish()
            return
        if self._stretches.open and (runner.spoilt or not runner.over):
            why = self._stretches.go_on(runner.following, runner.failures)
            if why is None:
                self._start_runner()
            else:
                self._end_stretch(why)
            if self._stretches.open:
                return
        if self._finishing or self._restarts.exhausted or (runner.over and not runner.spoilt):
            self._finish()

    def _lost(self) -> None:
        """End without a word of farewell: the user's side then takes this worker for lost."""
        if self._runner is not None:
            self._drain(self._runner)
        self._client.over = True
