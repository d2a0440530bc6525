"""The launcher: a process that serves an order as a runner does, by ranks in lock-step.

Towards the supervisor it is a runner; towards the ranks, what a supervisor is to runners. Each test
begins in all of them at once and has come to an end when all have. Knows no pytest.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import cloudpickle

from pytest_remotegpu.errors import FarSideError
from pytest_remotegpu.protocol import events, frames, orders
from pytest_remotegpu.protocol.plain import from_text, to_text
from pytest_remotegpu.worker import artifacts
from pytest_remotegpu.worker.alone import Alone
from pytest_remotegpu.worker.emit import Emitter
from pytest_remotegpu.worker.inbox import Inbox
from pytest_remotegpu.worker.process import DUMP
from pytest_remotegpu.worker.ranks import flight, mpi, native, rank, recorder, rendezvous
from pytest_remotegpu.worker.ranks.accounts import End
from pytest_remotegpu.worker.ranks.gathered import Gathered
from pytest_remotegpu.worker.ranks.team import Member, Team
from pytest_remotegpu.worker.ranks.trial import Trial
from pytest_remotegpu.worker.ranks.variables import meeting, of_rank
from pytest_remotegpu.worker.ranks.words import named

__all__ = ["launch"]

END_GRACE: Final = 5.0
"""Seconds that ranks have for the end of their session once one of them has failed at it."""
GOOD_END: Final = 60.0
"""The same where all is well so far."""
NO_LINUX: Final = "tests of several ranks run on Linux only, and this host runs {}"


def launch(
    order: orders.Order, emitter: Emitter, inbox: Inbox, channel: socket.socket, stacks: int
) -> NoReturn:
    """Serve an order that has been heard, then end the process.

    :param channel: to the supervisor; ranks must not have it. :param stacks: likewise, the file for
        stacks.
    """
    assert order.launch is not None
    if sys.platform != "linux":
        emitter.put(events.StartFailed(to_text(NO_LINUX.format(sys.platform))))
        emitter.over(failed=False)
        os._exit(0)
    world = order.launch.ranks
    os.chdir(order.cwd)  # the zygote's folder may be gone, without which torch can't be imported
    environ = order.environ if order.environ is not None else {**os.environ, **order.variables}
    try:
        folder = str(Path(order.site.artifacts).parent)
        mpirun = None
        if order.launch.launcher == "mpirun":
            mpirun = mpi.Mpirun(world, environ, folder)
        rendezvous.load(order.options.files)
        own = (channel, stacks) if mpirun is None else (channel, stacks, mpirun.listener)
        team = Team(world, own, live=order.options.live)  # before torch has any thread
        told = [{} for _ in range(world)] if mpirun is None else mpirun.variables()
    except FarSideError as error:
        emitter.put(events.StartFailed(to_text(str(error))))
        emitter.over(failed=False)
        os._exit(0)
    launcher = Launcher(order, emitter, inbox, team, rendezvous.Rendezvous())
    signal.signal(DUMP, lambda *_: launcher.write_stacks(stacks))
    signal.signal(signal.SIGINT, lambda *_: team.interrupt())
    launcher.serve(told)
    if mpirun is not None:
        mpirun.close(well=not any(member.status for member in team.members))
    emitter.over(failed=False)
    emitter.leave()


class Launcher:
    """Leads the ranks of one order."""

    def __init__(
        self,
        order: orders.Order,
        emitter: Emitter,
        inbox: Inbox,
        team: Team,
        meeting: rendezvous.Rendezvous,
    ) -> None:
        self._order = order
        self._emitter = emitter
        self._inbox = inbox
        self._team = team
        self._meeting = meeting
        self._gathered = Gathered(len(team.members))
        self._trial: Trial | None = None
        self._wanting: dict[int, list[int]] = {}
        self._exited: list[events.Exited] = []
        self._began = 0
        self._path = native.places(order.environ or {**os.environ, **order.variables})
        self._gone = False
        self._open(order.payload)

    def _open(self, payload: bytes) -> None:
        """Take in which tests there are."""
        opened = cloudpickle.loads(payload)
        self._ids: Sequence[str] = opened["ids"]
        self._alone = Alone(opened["alone"])

    def serve(self, told: Sequence[dict[str, str]]) -> None:
        """Serve it.

        :param told: further variables of each rank.
        """
        world = len(self._team.members)
        run = self._order.options.run or self._order.nonce
        meet = meeting(self._meeting.port, store=self._meeting.store)
        for member in self._team.members:
            variables = {**of_rank(member.number, world, run), **meet, **told[member.number]}
            member.handle.send(rank.order_for(self._order, member.number, variables))
        self._start()
        message: Any = self._choice() if self._order.collects else self._order.run
        while isinstance(message, orders.Run):
            self._stretch(message)
            message = None if self._emitter.spoilt else self._inbox.next_run()
        self._finish()

    # the start

    def _start(self) -> None:
        """Wait until every rank has collected."""
        while any(member.resting is None for member in self._team.members):
            self._take(self._team.turn(None))
            self._emitter.flush()
            dead = next((member for member in self._team.members if not member.alive), None)
            if dead is not None:
                self._die_like(dead)
            busy = [member for member in self._team.members if member.resting is None]
            if busy and all(member.number in self._wanting for member in busy):
                self._ask()
        self._meeting.look(member.handle.pid for member in self._team.members)
        for event in self._gathered.collected():
            self._emitter.put(event)
        self._emitter.flush()

    def _ask(self) -> None:
        """Ask for the values that any rank wants."""
        wanted = sorted({place for places in self._wanting.values() for place in places})
        members = [self._team.members[number] for number in self._wanting]
        self._wanting.clear()
        self._emitter.put(events.Wants(wanted))
        self._emitter.flush()
        message = self._inbox.answer()
        for member in members:
            member.handle.send(message)

    def _choice(self) -> Any:
        """Wait until the user's side has chosen among the tests; give what is to be done then."""
        self._emitter.put(events.StretchEnded())
        self._emitter.flush()
        message = self._inbox.next_run()
        if not isinstance(message, orders.Chosen):
            return message
        self._open(message.payload)
        self._tell(message, orders.Run(0, 0))
        self._start()
        return self._inbox.next_run()

    def _tell(self, *messages: object) -> None:
        for member in self._team.members:
            member.resting = None
        self._team.tell(*messages)

    def _die_like(self, member: Member) -> NoReturn:
        """End as a rank has ended before any test, and leave it to the supervisor to say so."""
        words = member.handle.unborn(member.status or 0, member.peak)
        text = f"{named([member.number])}: {words}\n"
        os.write(2, text.encode("utf-8", "replace"))
        self._emitter.collecting = member.handle.collecting
        self._emitter.flush()
        self._team.stop(self._team.members)
        code = os.waitstatus_to_exitcode(member.status or 0)
        if code < 0:
            signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
            os.kill(os.getpid(), -code)
        os._exit(max(code, 0))

    # what ranks say

    def _take(self, said: Iterable[tuple[Member, events.Batch]]) -> None:
        for member, batch in said:
            self._emitter.spoilt = self._emitter.spoilt or batch.spoilt
            for event in frames.decode_events(batch.events) if batch.count else ():
                self._take_event(member, event)
            if batch.current == events.FAILED:
                self._refused(member)

    def _take_event(self, member: Member, event: events.Event) -> None:
        match event:
            case events.StretchEnded():
                member.resting = from_text(event.reason)
            case events.Wants():
                self._wanting[member.number] = event.items
            case events.StartFailed():
                self._fail_start(member, event)
            case events.Exited() if self._trial is None:
                self._end_like(event)
            case events.Exited():
                self._exited.append(event)
            case events.Started():
                pass
            case _ if self._trial is not None and self._trial.take(member.number, event):
                pass
            case _:
                for passed in self._gathered.take(member.number, event):
                    self._emitter.put(passed)

    def _refused(self, member: Member) -> NoReturn:
        """End as a rank whose session could not begin, and say what that one said."""
        said = b"".join(tail.take() for tail in member.handle.tails.values())
        os.write(1, said)
        self._team.stop(self._team.members)
        self._emitter.over(failed=True)
        os._exit(0)

    def _fail_start(self, member: Member, event: events.StartFailed) -> NoReturn:
        text = to_text(f"on {named([member.number])}: ") + event.text
        self._emitter.put(events.StartFailed(text, event.usage))
        self._team.stop(self._team.members)
        self._emitter.over(failed=False)
        os._exit(0)

    def _end_like(self, event: events.Exited) -> NoReturn:
        """End as a rank does whose session ends before any test."""
        self._emitter.put(event)
        self._team.stop(self._team.members)
        self._emitter.over(failed=False)
        os._exit(0)

    # tests

    def _stretch(self, run: orders.Run) -> None:
        """Run the tests of one stretch, stopping before the next one where the budget is spent."""
        reason = ""
        before = self._emitter.failures
        self._emitter.following = run.first
        places = [p for p in range(run.first, run.last) if p not in self._gathered.absent]
        for number, place in enumerate(places):
            ending = self._inbox.withdrawn()
            if ending:
                reason = ending if ending == "stopped" else ""
                break
            if self._is_broken():
                return
            if self._alone.bars(place):
                self._emitter.spoilt, self._emitter.following = True, place
                break
            run = self._inbox.follows(run)
            following = places[number + 1] if number + 1 < len(places) else run.following
            reason = self._run_one(place, following)
            failures = self._emitter.failures
            if run.failures and failures - before >= run.failures:
                reason = f"stopping after {failures} failures"
            if reason or self._emitter.spoilt:
                break
        if self._emitter.spoilt and not reason:
            self._emitter.flush()
            return
        self._emitter.following = run.last
        self._emitter.put(events.StretchEnded(to_text(reason)))
        self._emitter.flush()

    def _is_broken(self) -> bool:
        """Say whether a rank has ended while no test ran; others then take over."""
        self._take(self._team.turn(0))
        dead = [member for member in self._team.members if not member.alive]
        for member in dead:
            when = f"{named([member.number])}, while no test ran:"
            self._emitter.put(member.handle.told_end(member.status or 0, member.peak, when))
        if dead:
            self._gone = self._emitter.spoilt = True
            self._emitter.flush()
        return bool(dead)

    def _run_one(self, place: int, following: int) -> str:
        """Run one test; give why the stretch ends with it, if it does."""
        emitter, members = self._emitter, self._team.members
        self._alone.begin(place)
        self._began = time.time_ns()
        trial = self._trial = Trial(place, members)
        self._exited.clear()
        emitter.current, emitter.following = place, place + 1
        emitter.put(events.Started(place))
        emitter.flush()
        self._tell(orders.Meet(*self._meeting.renew()), orders.Run(place, place + 1, 0, following))
        while busy := trial.busy():
            self._take(self._team.turn(trial.patience()))
            said = trial.advance()
            for event in said:
                emitter.put(event)
            if said:
                emitter.flush()
            if trial.is_over():
                self._stop(trial, busy)
        self._team.show_rest()
        self._close(trial, place)
        reasons = [member.resting for member in members if member.resting]
        return reasons[0] if reasons else ""

    def _stop(self, trial: Trial, busy: list[Member]) -> None:
        """End ranks that wait for what will never come, after a look at what they do."""
        recorded = self._record(trial.place)
        self._look(busy, trial.place)
        trial.stop(busy, recorded)
        self._take(self._team.stop(busy))

    def _close(self, trial: Trial, place: int) -> None:
        """Say what the test has come to."""
        emitter = self._emitter
        self._trial = None
        if trial.broken:
            self._team.stop(self._team.members)
            self._gone = emitter.spoilt = True
        said = trial.ended() if self._exited else trial.finish()
        crash = next((event for event in said if isinstance(event, events.Crashed)), None)
        emitter.failures += trial.failures
        for event in said:
            if event is not crash:
                emitter.put(event)
        if trial.failures:
            self._keep_logs(place, trial.logs())
        elif strange := trial.strange():
            emitter.put(events.Note(to_text(f"{self._name(place)} passed, and {strange}")))
        base, limit = self._order.site.artifacts, self._order.max_artifact
        artifacts.send(base, place, limit, emitter, self._inbox.wait_until_shown)
        for event in self._gathered.loose():
            emitter.put(event)
        if self._exited:
            bad = [exited for exited in self._exited if exited.status != 0]
            exited = (bad or self._exited)[0]
            well = exited.status == 0 and trial.failures  # one rank can't speak for a failed one
            emitter.put(events.Exited(exited.text, 1) if well else exited)
        emitter.put(events.Finished(place) if crash is None else crash)
        emitter.current = -1
        if self._order.options.live and not emitter.spoilt:
            emitter.flush(waits=True)
            self._inbox.wait_until_shown()
        else:
            emitter.flush()

    def _name(self, place: int) -> str:
        """Give the id of a test."""
        return str(self._ids[place])

    def _record(self, place: int) -> dict[int, list[flight.Operation]]:
        """Give the collectives that ranks have entered; keep their records as artifacts."""
        alive = [member.number for member in self._team.members if member.alive]
        said = recorder.ask(str(Path(self._order.site.artifacts).parent), alive)
        found = {rank: flight.read(dumps.values(), self._began) for rank, dumps in said.items()}
        if any(found.values()):
            files = {f"rank{rank}.flight.json": recorder.joined(said[rank]) for rank in found}
            self._keep(place, files)
        return found

    def _look(self, members: Sequence[Member], place: int) -> None:
        """Have ranks' stacks written to their files, with the native frames that can be had."""
        self._team.look(members)
        alive = {member.number: member.handle for member in members if member.alive}
        pids = {number: handle.pid for number, handle in alive.items()}
        found = native.stacks(pids, self._path)
        if found and place >= 0:
            self._keep(place, {f"rank{number}.native.txt": found[number] for number in found})
        for number, text in found.items():
            if frames := native.innermost(text):
                os.write(alive[number].stacks, f"\n{frames}\n".encode("utf-8", "replace"))

    def _keep_logs(self, place: int, logs: dict[int, str]) -> None:
        """Write what each rank said among the artifacts of a test that has not passed."""
        self._keep(place, {f"rank{number}.log": text for number, text in logs.items()})

    def _keep(self, place: int, files: Mapping[str, str]) -> None:
        folder = artifacts.folder(self._order.site.artifacts, place)
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (folder / name).write_text(text, "utf-8", errors="surrogatepass")

    # a test that takes too long

    def write_stacks(self, file: int) -> None:
        """Write what every rank does, for a supervisor that is about to end them all."""
        busy = self._trial.busy() if self._trial is not None else self._team.members
        place = self._emitter.current
        recorded = self._record(place) if place >= 0 else {}
        self._look(busy, place)
        parts = []
        ends: dict[int, End] = {}
        for member in self._team.members:
            name = named([member.number])
            if member not in busy:
                parts.append(f"{name}: has come to the end of the test")
                continue
            now = flight.pending(recorded.get(member.number, ()))
            why = "was stopped when the test was too late"
            end = ends[member.number] = member.stopped(why, now.name if now else "")
            parts.append(f"{name}{f', in {end.inside}' if end.inside else ''}:\n{end.stack}")
            if not self._order.options.live:
                for label, text in (("stdout", end.stdout), ("stderr", end.stderr)):
                    if text:
                        os.write(1, f"[{name}, {label}]\n{text}\n".encode("utf-8", "replace"))
        if self._trial is not None:
            self._keep_logs(place, self._trial.logs(ends))
        if collectives := flight.words(recorded, len(self._team.members)):
            parts.append(f"collectives:\n{collectives}")
        os.write(file, "\n".join(parts).encode("utf-8", "replace"))

    # the end

    def _finish(self) -> None:
        """End the ranks' sessions in good order, and say how they ended."""
        members = self._team.members
        deadline: float | None = None
        if not self._gone:
            self._team.tell(orders.Finish())
            while any(member.alive for member in members):
                left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                self._take(self._team.turn(left))
                ended = [member for member in members if not member.alive]
                if deadline is None and ended:
                    bad = self._emitter.spoilt or any(member.status for member in ended)
                    deadline = time.monotonic() + (END_GRACE if bad else GOOD_END)
                elif deadline is not None and any(member.status for member in ended):
                    deadline = min(deadline, time.monotonic() + END_GRACE)
                if deadline is not None and time.monotonic() >= deadline:
                    self._give_up()
            for member in members:
                self._tell_end(member)
        for event in self._gathered.loose():
            self._emitter.put(event)
        with contextlib.suppress(AttributeError, ValueError, OSError):
            sys.stdout.flush()
        self._team.show_rest()

    def _give_up(self) -> None:
        """Wait no longer for ranks whose session does not come to its end."""
        busy = [member for member in self._team.members if member.alive]
        self._look(busy, -1)
        for member in busy:
            member.handle.late = "was stopped, long after another rank had ended"
        self._take(self._team.stop(busy))

    def _tell_end(self, member: Member) -> None:
        """Say how a rank ended, where that was not in good order."""
        handle = member.handle
        if handle.over and not member.status:
            return
        when = f"{named([member.number])}, after its last test:"
        status = member.status or 0
        self._emitter.put(handle.told_end(status, member.peak, when, failed=not handle.excused))
