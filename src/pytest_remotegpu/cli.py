"""The command ``remotegpu``: look at what runs here or is rented, end it, find out what is wrong.

Knows agents, backends' lists and checks by what they return. Must not import pytest: what is wrong
may be that it does not load.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu import agents, cards, doctor, errands, leftovers, rented
from pytest_remotegpu.agents import Agent
from pytest_remotegpu.backends.base import Running, Site
from pytest_remotegpu.doctor.gpus import Use, use_of
from pytest_remotegpu.errors import RemoteGpuError, UsageError
from pytest_remotegpu.rented import Rented, Told

__all__ = ["main"]

FINE, WRONG, USAGE = 0, 1, 2
INTERRUPTED, UNREAD = 128 + 2, 128 + 13
"""What a shell shows of a process that Ctrl-C has ended, or the end of whoever read from it."""
RUN_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,63}")
"""What a session takes as the id of its run; nothing that is rented can have another."""
LINES: Final = 20
WAIT: Final = 300.0
"""Seconds for which the doctor waits for a card that is not free, where nobody says otherwise."""
LOOK_AGAIN: Final = 0.2
"""Seconds between two looks at a log that is followed."""


# ps


def ps(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Say which agents and workers run for this user, who is on which card, what is rented."""
    found = agents.find(environ)
    uses = [use_of(card) for card in cards.visible({})]
    away = rented.ask(_site(), orphans=True)
    if options.json:
        _print_json(
            {
                "agents": [_agent_data(a) for a in found],
                "cards": [_use_data(u) for u in uses],
                "backends": [rented.data(each) for each in away],
            }
        )
    else:
        lines = (*_agent_lines(found, time.time()), *_card_lines(uses, cards.trouble()))
        for line in (*lines, *rented.lines(away)):
            print(line)
    silent = any(agent.state == agents.SILENT for agent in found)
    return WRONG if silent or any(each.trouble for each in away) else FINE


def _site() -> Site:
    return Site(executable=sys.executable, platform=sys.platform, root=str(Path.cwd()))


def _agent_data(agent: Agent) -> dict[str, Any]:
    return {
        **agent.said,
        "socket": str(agent.socket),
        "log": str(agent.log),
        "state": agent.state,
        "agent": agent.pid,
        "workers": list(agent.workers),
    }


def _use_data(use: Use) -> dict[str, Any]:
    return {
        **asdict(use.card),
        "used": use.used,
        "lease": asdict(use.lock),
        "tenants": [asdict(user) for user in use.tenants],
        "strangers": [asdict(user) for user in use.strangers],
    }


def _agent_lines(found: Sequence[Agent], now: float) -> Iterator[str]:
    if not found:
        yield "no agent runs for this user"
    for agent in found:
        yield f"agent {_about(agent, now)}"
        for zygote in agent.zygotes:
            yield f"  zygote {zygote['pid']}: {zygote['about']}"
        for worker in agent.workers:
            yield f"  worker {_about_worker(worker, now)}"


def _about(agent: Agent, now: float) -> str:
    if agent.state == agents.DEAD:
        return f"is dead: {agent.socket} is left of it; remotegpu stop takes that away"
    if agent.state == agents.SILENT:
        return f"{agent.pid} does not answer at {agent.socket}; remotegpu stop ends it"
    said = agent.said
    age, idle = _seconds(now - float(said["since"])), _seconds(float(said["idle"]))
    stale = "; the package has changed, so it makes room for a new one" if said.get("stale") else ""
    return f"{agent.pid}, {said['python']}, for {age}, ends after {idle} idle{stale}"


def _about_worker(worker: Mapping[str, Any], now: float) -> str:
    if "since" not in worker:
        return str(worker["pid"])
    age = _seconds(now - float(worker["since"]))
    return f"{worker['pid']} for session {worker['client']}, for {age}: {worker['about']}"


def _seconds(number: float) -> str:
    """Write seconds as people do.

    >>> [_seconds(number) for number in (0.4, 59, 61, 3700, 90000)]
    ['0 s', '59 s', '1 min 1 s', '1 h 1 min', '25 h 0 min']
    """
    minutes, seconds = divmod(max(int(number), 0), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def _card_lines(uses: Sequence[Use], trouble: str) -> Iterator[str]:
    if not uses:
        yield f"no card: {trouble or 'the driver shows none'}"
    for use in uses:
        yield use.head
        yield from (f"  {line}" for line in use.people() or ["free"])


# stop


def stop(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """End agents and what is rented; what serves sessions only where all are to end."""
    run = options.of_run
    if run is not None and not RUN_ID.fullmatch(run):
        raise UsageError(
            f"--run={run!r} is no id of a run; give the one that PYTEST_REMOTEGPU_RUN had, 1 to 63"
            " of: letters, digits, . _ - (is a variable unset in the command?)"
        )
    if run is not None and (options.names or options.all):
        raise UsageError(f"--run={run} names what to end; give neither names nor --all beside it")
    away = rented.ask(_site())
    if run is not None:
        return _say(rented.stop_run(away, run))
    if options.names:
        chosen = rented.pick(away, options.names)
        return _say(rented.stop(found, running) for found, running in chosen)
    status = _stop_agents(options, environ)
    return max(status, _say(chain(*(rented.stop_all(each, busy=options.all) for each in away))))


def _say(told: Iterable[Told]) -> int:
    """Print what was done, and say whether all of it went well."""
    status = FINE
    for text, good in told:
        print(text, flush=True)
        status = status if good else WRONG
    return status


def _stop_agents(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    status = FINE
    found = agents.find(environ)
    if not found:
        print("no agent runs for this user")
    for agent in found:
        busy = f"{_count(len(agent.workers), 'worker')} for running sessions"
        if agent.state == agents.SERVES and agent.workers and not options.all:
            print(f"agent {agent.pid} was left alone: it has {busy}; --all ends them too")
            status = WRONG
            continue
        if agent.state == agents.SILENT:
            print(f"agent {agent.pid} does not answer and is killed")
        gone = agents.end(agent)
        status = status if gone else WRONG
        print(_epitaph(agent, busy) if gone else f"agent {agent.pid} does not end")
    return status


def _epitaph(agent: Agent, busy: str) -> str:
    if agent.state == agents.DEAD:
        return f"{agent.socket}, left of a dead agent, was removed"
    rest = f", and with it {busy}" if agent.workers else ""
    return f"agent {agent.pid} has ended{rest}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' if number != 1 else ''}"


# logs


def logs(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the ends of the agents' logs, and of what is rented; go on if asked to."""
    if options.names:
        found = rented.pick(rented.ask(_site()), options.names)
        if options.follow and len(found) > 1:
            raise UsageError("--follow takes one name")
        return max(_log_of(options, *each) for each in found)
    status = _agent_logs(options, environ)
    for away in rented.ask(_site()):
        status = max(status, _say([(rented.refusal(away), False)] if away.trouble else []))
        status = max([status, *(_log_of(options, away, running) for running in away.running)])
    return status


def _log_of(options: argparse.Namespace, found: Rented, running: Running) -> int:
    """Print the end of the log of what is rented; with its name, and if asked to, what follows."""
    print(f"==> {found.name(running)} <==", flush=True)
    trouble = ""
    if options.follow and options.names:
        with contextlib.suppress(KeyboardInterrupt):
            _, trouble = rented.attempt(lambda: _print_all(found.follow(running)))
    else:
        last, trouble = rented.attempt(lambda: deque(found.log(running), options.lines))
        _print_all(last or ([] if trouble else ["nothing to tell"]))
    return _say([(f"its log can't be had: {trouble}", False)] if trouble else [])


def _print_all(lines: Iterable[str]) -> None:
    for line in lines:
        print(line.rstrip("\n"), flush=True)


def _agent_logs(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    paths = agents.logs(environ)
    if not paths:
        print("no agent of this user has left a log")
    seen = {path: path.read_bytes() for path in paths}
    for path, text in seen.items():
        print(f"==> {path} <==")
        lines = text.decode("utf-8", "replace").splitlines()[-options.lines :]
        for line in lines or ["nothing to tell"]:
            print(line)
    if options.follow and paths:
        with contextlib.suppress(KeyboardInterrupt):
            _follow({path: len(text) for path, text in seen.items()})
    return FINE


def _follow(read: dict[Path, int]) -> None:
    """Print what is added to logs, of which so many bytes have been read."""
    sys.stdout.flush()
    while True:
        for path, before in read.items():
            with contextlib.suppress(OSError), path.open("rb") as log:
                size = os.fstat(log.fileno()).st_size
                log.seek(before if size >= before else 0)  # a log that grew too large begins anew
                sys.stdout.write(log.read().decode("utf-8", "replace"))
                read[path] = log.tell()
        sys.stdout.flush()
        time.sleep(LOOK_AGAIN)


# gc


def collect(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Take away what nobody will use or end any more, here and with each backend."""
    dry = options.dry_run
    word = "would be taken away" if dry else "was taken away"
    dead = [agent for agent in agents.find(environ) if agent.state == agents.DEAD]
    gone = [agent.socket for agent in dead if dry or agents.end(agent)]
    gone += leftovers.abandoned() if dry else leftovers.sweep()
    gone += agents.old_logs(environ, time.time(), remove=not dry)
    for path in gone:
        print(f"{path} {word}")
    away = rented.ask(_site(), orphans=True)
    if not gone and not any(each.orphans or each.trouble for each in away):
        print("nothing is left over")
    return _say(chain(*(rented.collect(each, dry=dry) for each in away)))


# doctor


def examine(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print what is wrong, and the way out of each."""
    checks = []
    for check in _checks(options, environ):
        checks.append(check)
        if not options.json:
            print(f"{check.state:<4}  {check.name:<16}  {check.text}", flush=True)
            if check.fix:
                print(f"{'':>24}-> {check.fix}")
    states = [check.state for check in checks]
    wrong = states.count(doctor.FAIL)
    if options.json:
        _print_json({"checks": [asdict(check) for check in checks], "wrong": wrong})
    else:
        print(f"{wrong} FAIL, {states.count(doctor.WARN)} warn, {states.count(doctor.OK)} ok")
    return WRONG if wrong else FINE


def _checks(options: argparse.Namespace, environ: Mapping[str, str]) -> Iterator[doctor.Check]:
    if options.remote is None:
        yield from doctor.examine(environ)
        return
    from pytest_remotegpu.doctor import far  # noqa: PLC0415 -- needs packages that may be missing

    checks = far.look(options.remote, options.python, environ, options.wait)
    yield from doctor.examine(environ)
    yield from checks


# the command line


class Parser(argparse.ArgumentParser):
    """Takes no options cut short, and does not hide that its help can't be written."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given, allow_abbrev=False)

    def print_help(self, file: Any = None) -> None:
        """Write the help to the standard output."""
        print(self.format_help(), end="", file=file)


def _parser(first: str = "") -> argparse.ArgumentParser:
    """Make the parser; one command's options only where it is the first word."""
    parser = Parser(
        prog="remotegpu", description="What pytest-remotegpu keeps running here, and what is wrong."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run=run)
        return made

    listing = command("ps", ps, "list agents, workers, who is on which card, and what is rented")
    listing.add_argument("--json", action="store_true", help="as data")
    ending = command("stop", stop, "end the agents, and what is rented, that no session uses")
    ending.add_argument("--all", action="store_true", help="those in use too, and what runs there")
    ending.add_argument(
        "--run", dest="of_run", metavar="ID", help="only what belongs to that run alone"
    )
    ending.add_argument("names", nargs="*", metavar="BACKEND:ID", help="only these, in use or not")
    showing = command("logs", logs, "print the ends of the logs of agents, and of what is rented")
    showing.add_argument("names", nargs="*", metavar="BACKEND:ID", help="only of these")
    showing.add_argument("-n", "--lines", type=_lines, default=LINES, help=f"of each ({LINES})")
    showing.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")
    tidying = command("gc", collect, "take away what is left over and of no use to anybody")
    tidying.add_argument("--dry-run", action="store_true", help="only say what that is")
    errands.add_run(command("run", errands.run, "run one command as tests would run, and where"))
    errands.add_shell(command("shell", errands.shell, "a shell where tests would run"))
    suite = command("diagnose", errands.diagnose, "find out why a model does not learn")
    if first == "diagnose":
        errands.add_diagnose(suite)
    measuring = command("bench", errands.bench, "time FlashAttention-2, and find its thresholds")
    if first == "bench":
        errands.add_bench(measuring)
    asking = command("doctor", examine, "find out what is in the way of GPU tests here")
    asking.add_argument("--json", action="store_true", help="as data")
    asking.add_argument("--remote", metavar="SPEC", help="try a far side, too")
    asking.add_argument("--python", metavar="PATH", default="", help="the far interpreter")
    asking.add_argument(
        "--wait", metavar="S", type=_seconds_of, default=WAIT, help=f"for a card there ({WAIT:g})"
    )
    return parser


def _seconds_of(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", text) or not float(text):
        raise argparse.ArgumentTypeError(
            f"invalid number of seconds {text!r}; write more than 0, such as {WAIT:g}"
        )
    return float(text)


def _lines(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or not int(text):
        raise argparse.ArgumentTypeError(
            f"invalid number of lines {text!r}; write 1 or more, such as {LINES}"
        )
    return int(text)


def _print_json(data: Mapping[str, Any]) -> None:
    print(json.dumps(data, indent=2))


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says.

    :return: 0 where all is well, 1 where something is wrong, 2 for a command line that can't be
        meant; 130 and 141 as a shell has it, after Ctrl-C and where nobody reads any more.
    """
    if sys.stdout is None:
        print("remotegpu: the standard output is closed", file=sys.stderr)
        return WRONG
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()
        return UNREAD
    except OSError as error:
        _give_up_output()
        what = "" if error.filename else "the output can't be written: "
        print(f"remotegpu: {what}{error}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _run(arguments: Sequence[str] | None) -> int:
    try:
        given, words = errands.split(sys.argv[1:] if arguments is None else arguments)
        options = _parser(*given[:1]).parse_args(given)
        options.words = words
        status: int = options.run(options, os.environ)
    except SystemExit as end:  # after its help, or for a command line that can't be meant
        return FINE if end.code is None else int(end.code)
    except UsageError as error:
        print(f"remotegpu: {error}", file=sys.stderr)
        return USAGE
    except RemoteGpuError as error:
        print(f"remotegpu: {error}", file=sys.stderr)
        return WRONG
    return status


def _give_up_output() -> None:
    """Let what is still to be written go nowhere, so that Python does not complain of it."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
