"""What ``remotegpu run``, ``shell``, ``diagnose`` and ``bench`` take, and what a session is told.

Must not import pytest before a command is to run; what becomes of the command is none of its
business.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pytest_remotegpu.errors import UsageError

__all__ = [
    "add_bench",
    "add_diagnose",
    "add_run",
    "add_shell",
    "bench",
    "diagnose",
    "run",
    "shell",
    "split",
]

PASSED_ON: Final = {
    "--remote-run-timeout": "SECONDS",
    "--remote-max-cost": "USD",
    "--remote-wait": "SECONDS",
    "--remote-rev": "REF",
    "--remote-json": "FILE",
    "--remote-ephemeral": None,
    "--remote-fresh": None,
    "--remote-timeline": None,
    "--remote-debug": None,
    "--gpu-required": None,
}
"""Options of sessions that a command may have, too, with what stands for their value."""


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Tell what is for us from the command, which stands behind two dashes.

    >>> split(["run", "--remote=local:cpu", "--", "git", "log", "--", "file"])
    (['run', '--remote=local:cpu'], ['git', 'log', '--', 'file'])
    >>> split(["stop", "--", "cloud:a-1"])
    (['stop', '--', 'cloud:a-1'], [])
    """
    given = list(arguments)
    if given[:1] != ["run"] or "--" not in given:
        return given, []
    place = given.index("--")
    return given[:place], given[place + 1 :]


def add_run(parser: argparse.ArgumentParser) -> None:
    """Let a command take what sessions take."""
    parser.usage = "remotegpu run --remote=SPEC [options] -- COMMAND [arguments]"
    add_shell(parser)


def add_shell(parser: argparse.ArgumentParser) -> None:
    """The same for a shell."""
    _add_session(parser, required=True)


def add_diagnose(parser: argparse.ArgumentParser) -> None:
    """The same for a suite of checks, which needs no far side."""
    from pytest_remotegpu.diagnostics import asking  # noqa: PLC0415 -- for this command only

    parser.usage = "remotegpu diagnose MODULE:FACTORY [--remote=SPEC] [options]"
    asking.add(parser)
    _add_session(parser.add_argument_group("on a far side"), required=False)


def add_bench(parser: argparse.ArgumentParser) -> None:
    """Let the command of benchmarks have commands of its own."""
    from pytest_remotegpu.bench.fa2 import commands  # noqa: PLC0415 -- for this command only

    sweeping = commands.add(parser).add_argument_group("on a far side")
    sweeping.add_argument(
        "--remote",
        metavar="SPEC",
        action="append",
        default=[],
        help="where, as for tests; several are measured side by side",
    )
    _add_passed_on(sweeping)


def _add_session(parser: Any, *, required: bool) -> None:
    parser.add_argument("--remote", metavar="SPEC", required=required, help="where, as for tests")
    parser.add_argument(
        "--gpu-count", dest="gpus", type=_gpus, default=0, metavar="N", help="GPUs that it sees (1)"
    )
    _add_passed_on(parser)


def _add_passed_on(parser: Any) -> None:
    for name, value in PASSED_ON.items():
        kind: dict[str, Any] = {"metavar": value} if value else {"action": "store_true"}
        parser.add_argument(name, help="as for tests", **kind)
    parser.add_argument(
        "-o", dest="ini", action="append", default=[], metavar="NAME=VALUE", help="an ini option"
    )


def _gpus(text: str) -> int:
    if not re.fullmatch("[0-9]{1,3}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"invalid number of GPUs {text!r}; write 1 or more")
    return int(text)


def run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run one command on a far side, in the surroundings that tests have there.

    :raises UsageError: for what can't be meant.
    """
    if not options.words:
        raise UsageError(
            "no command is given; it stands behind two dashes: "
            f"remotegpu run --remote={options.remote} -- COMMAND"
        )
    told = _for_session(options)
    from pytest_remotegpu import commanding  # noqa: PLC0415 -- needs pytest

    return commanding.run(options.words, gpus=options.gpus or 1, options=told, environ=environ)


def shell(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Let the user sit on a far side, in the surroundings that tests have there.

    :raises UsageError: for what can't be meant.
    """
    told = _for_session(options)
    from pytest_remotegpu import shelling  # noqa: PLC0415 -- needs pytest

    return shelling.run(spec=options.remote, gpus=options.gpus or 1, options=told, environ=environ)


def diagnose(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Make the checks of training code on a user's model, here or on a far side.

    :raises UsageError: for what can't be meant.
    """
    if options.remote is None or options.list:
        if options.remote is None and (alien := _of_sessions(options)):
            raise UsageError(f"{alien} is about a far side; name one with --remote=SPEC")
        from pytest_remotegpu.diagnostics import __main__  # noqa: PLC0415 -- for this command only

        return __main__.answer(options)
    told = _for_session(options)
    from pytest_remotegpu import diagnosing  # noqa: PLC0415 -- needs pytest

    return diagnosing.run(options, told, environ)


def bench(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Time FlashAttention-2, here or on far sides, or look at what was measured.

    :raises UsageError: for what can't be meant.
    """
    if not getattr(options, "sweeps", False):
        answer: int = options.answer(options, _say)
        return answer
    if not options.remote:
        if alien := _of_sessions(options):
            raise UsageError(f"{alien} is about a far side; name one with --remote=SPEC")
        from pytest_remotegpu.bench.fa2 import commands  # noqa: PLC0415 -- for this command only

        return commands.here(options, _say)
    told = {spec: _for_session(options, spec) for spec in options.remote}
    from pytest_remotegpu import benching  # noqa: PLC0415 -- needs pytest

    return benching.run(options, told, environ)


def _say(text: str) -> None:
    """Print what may have been told by somebody else."""
    from pytest_remotegpu.bench.fa2.showing import clean  # noqa: PLC0415 -- for this command only

    sys.stdout.write(f"{clean(text)}\n")
    sys.stdout.flush()


def _of_sessions(options: argparse.Namespace) -> str:
    """Name an option that was given and is about sessions."""
    given = {name: getattr(options, name[2:].replace("-", "_")) for name in PASSED_ON}
    given |= {"--gpu-count": getattr(options, "gpus", 0), "-o": options.ini}
    return next((name for name, value in given.items() if value), "")


def _for_session(options: argparse.Namespace, spec: str = "") -> list[str]:
    """Give the options of the session.

    :param spec: the far side, where there may be several.
    :raises UsageError: where the far side can't be meant.
    """
    from pytest_remotegpu.config import split_spec  # noqa: PLC0415 -- needs packages

    spec = spec or options.remote
    split_spec(spec)
    words = [f"--remote={spec}"]
    for name, value in PASSED_ON.items():
        given = getattr(options, name[2:].replace("-", "_"))
        if given:
            words.append(name if value is None else f"{name}={given}")
    for each in options.ini:
        words += ["-o", each]
    return words
