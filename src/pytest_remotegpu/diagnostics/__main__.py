"""``python -m pytest_remotegpu.diagnostics MODULE:FACTORY``: the suite, in this process.

Its stdout is for what it has to say, one line a check, or JSON alone; whatever the user's code
prints goes to stderr. Knows the command line and the streams.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.diagnostics import asking, faults, given, looking, order, report, suite

__all__ = ["main"]

FINE, USAGE, RAISED, INTERRUPTED, UNREAD, ENDED = 0, 2, 3, 130, 141, 143
"""Exit statuses; a check that failed is 1, see :attr:`report.Report.status`."""
NAME: Final = "remotegpu diagnose"


class EndedError(KeyboardInterrupt):
    """Raised for SIGTERM, which ends a suite as Ctrl-C does."""


class Out:
    """The stdout that this process was started with, while all others write to stderr."""

    def __init__(self, stream: int) -> None:
        self._stream = stream

    def say(self, text: str) -> None:
        """Write a line.

        :raises BrokenPipeError: where nobody reads it.
        """
        left = memoryview(f"{text}\n".encode(errors="backslashreplace"))
        while left:
            left = left[os.write(self._stream, left) :]


@contextlib.contextmanager
def aside() -> Iterator[Out]:
    """Let what is printed go to stderr, by C code and by processes too."""
    sys.stdout.flush()
    stream = os.dup(1)
    os.dup2(2, 1)
    try:
        yield Out(stream)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(stream, 1)
        os.close(stream)


def parser(prog: str = "python -m pytest_remotegpu.diagnostics") -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    made = argparse.ArgumentParser(
        prog=prog, allow_abbrev=False, description="Find out why a model does not learn."
    )
    asking.add(made)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says.

    :return: 0 where all checks that were run have passed, 1 where one failed, 2 for what can't be
        meant, 3 where the user's code raised; 130, 141, 143 as a shell has it.
    """
    return answer(parser().parse_args(arguments))


def answer(options: argparse.Namespace) -> int:
    """The same for options that were read already."""
    if options.list:
        return show()
    try:
        with aside() as out:
            return _diagnose(asking.read(options), out)
    except faults.NotMeantError as error:
        return complain(str(error), USAGE)
    except faults.UserCodeError as error:
        print(error.raised.traceback.rstrip(), file=sys.stderr)
        return complain(f"your code raised {error.raised.head}", RAISED)
    except BrokenPipeError:
        return UNREAD
    except OSError as error:
        return complain(f"the report can't be written: {error}", USAGE)
    except EndedError:
        return ENDED
    except KeyboardInterrupt:
        return INTERRUPTED


def complain(text: str, status: int) -> int:
    """Say on stderr what is wrong; give the status."""
    print(f"{NAME}: {text}", file=sys.stderr)
    return status


def show() -> int:
    """Show the checks in their order."""
    for step in order.STEPS:
        option = f" ({step.option})" if step.option else ""
        print(f"{step.name}{option}\n    {step.about}")
        if step.needs:
            print(f"    not run where one of these has failed: {', '.join(step.needs)}")
    return FINE


@contextlib.contextmanager
def _terminated() -> Iterator[list[int]]:
    """Let SIGTERM raise, so that what was measured is written and ranks are ended.

    :return: is not empty once it came.
    """
    came: list[int] = []

    def end(number: int, _: Any) -> None:
        came.append(number)
        raise EndedError

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)


def _diagnose(asked: asking.Asked, out: Out) -> int:
    folder = Path(asked.out)
    report.prepare(folder)
    progress = Out(2) if asked.json else out
    with _terminated() as came:
        try:
            outcomes, facts = _outcomes(asked)
        except faults.NotMeantError:
            report.tidy(folder)
            raise
        shown = ", ".join(f"{name} {value}" for name, value in facts.items())
        progress.say(f"{asked.target}: {shown or 'can not be made'}, seed {asked.seed}")
        told = report.Report(asked, facts, folder)
        for outcome in outcomes:
            told.add(outcome)
            for line in report.lines(outcome):
                progress.say(line)
    told.complete = told.status != INTERRUPTED
    told.write()
    if asked.json:
        out.say(json.dumps(told.to_plain(), indent=2))
    progress.say(told.summary())
    if not asked.away:
        progress.say(f"report: {folder / report.NAME}")
    return ENDED if came else told.status


def _outcomes(asked: asking.Asked) -> tuple[Iterable[suite.Outcome], Mapping[str, Any]]:
    """Make ready what is checked; where the user's code raises there, nothing else is run."""
    try:
        looking.look(asked.target, asked.parts, Path.cwd())
        subject = given.load(asked)
    except faults.UserCodeError as error:
        return suite.nothing(asked, error.raised), {}
    return suite.run(asked, subject), subject.facts


if __name__ == "__main__":
    raise SystemExit(main())
