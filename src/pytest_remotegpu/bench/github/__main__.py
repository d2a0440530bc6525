"""What the jobs of ``gpu-bench.yml`` call: decide, react, answer, propose.

Texts of others come in by files and the environment, never by an argument, and go out checked.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pytest_remotegpu.bench.configs import KEYS
from pytest_remotegpu.bench.github import comments, documents, judging, reactions, runner, wording
from pytest_remotegpu.bench.github.api import Api, open_api
from pytest_remotegpu.bench.github.asking import COMMIT, read_card, read_margin
from pytest_remotegpu.bench.github.proposing import Outcome, Place, Text, propose
from pytest_remotegpu.errors import RemoteGpuError, UsageError

FINE, BAD, USAGE = 0, 1, 2
LOGIN: Final = "github-actions[bot]"
"""Who the token of a job is; GPU_BENCH_LOGIN names another one."""


def asked(api: Api, environ: Mapping[str, str], _: Path) -> int:
    """Decide about the event; write ``allowed`` and what belongs to it as outputs."""
    rules = judging.Rules(
        tuple(environ.get("CARDS", "").split()),
        environ.get("DEFAULT_MARGIN") or "1.2",
        environ.get("FORKS", "") == "named",
    )
    if not rules.cards:
        raise UsageError("CARDS is empty; name the types of card that may be asked for")
    decision = judging.judge(runner.read_event(environ), environ, rules, api)
    runner.write_outputs(environ, decision.outputs())
    kind = "error" if decision.failed else "notice" if decision.run else "warning"
    print(runner.annotation(kind, decision.why))
    return BAD if decision.failed else FINE


def react(api: Api, environ: Mapping[str, str], _: Path) -> int:
    """React to the comment as REACTION says, and write REPLY into ours, where there is one."""
    reaction, reply = environ.get("REACTION", ""), environ.get("REPLY", "")
    if reaction:
        _try_react(api, environ, reaction)
    if reply:
        part = comments.Part(runner.order(environ), wording.refusal(reply))
        comments.put(api, _number(environ, "NUMBER"), comments.NOTE, part, _login(environ))
    return FINE


def answer(api: Api, environ: Mapping[str, str], file: Path) -> int:
    """Say what was measured: in our comment, if a comment has asked, and on the run's page."""
    job = _job(environ)
    text, good = _answered(job, file, environ)
    runner.write_page(environ, f"{text}\n")
    if environ.get("NUMBER"):
        part = comments.Part(runner.order(environ), text.strip())
        where = comments.put(
            api,
            _number(environ, "NUMBER"),
            job.card,
            part,
            _login(environ),
            drop=(comments.NOTE,),
        )
        print(runner.annotation("notice", where or "a later run has answered already"))
    if environ.get("COMMENT"):
        _try_react(api, environ, "rocket" if good else "confused")
    return FINE if good else BAD


def _answered(job: wording.Job, file: Path, environ: Mapping[str, str]) -> tuple[str, bool]:
    """Write the answer, and say whether something was decided."""
    try:
        measured = documents.read(file)
    except documents.DocumentError as error:
        return wording.failure(job, str(error)), False
    faults = documents.find_faults(measured, job.card, job.margin)
    if job.result != "success":
        faults = ["the benchmark did not end well", *faults]
    proposal = _proposal(environ) if not faults else ""
    return wording.report(job, measured, faults, proposal), not faults


def _proposal(environ: Mapping[str, str]) -> str:
    """Say what has become of the thresholds; the job before has made sure of the form."""
    state, number = environ.get("PROPOSAL", ""), environ.get("PROPOSAL_NUMBER", "")
    at = f" #{number}" if re.fullmatch("[0-9]{1,18}", number) else ""
    match state:
        case "opened" | "updated" if at:
            return f"The verdict has changed: new thresholds are proposed in{at}."
        case "closed" if at:
            return f"The configuration has these thresholds already;{at} was closed."
        case "unchanged":
            return "The configuration has these thresholds already: the verdict has not changed."
    why = environ.get("PROPOSAL_WHY") or "the job that proposes them did not end well"
    return f"No thresholds were proposed: {wording.code_in(why)}"


def offer(api: Api, environ: Mapping[str, str], file: Path) -> int:
    """Propose new thresholds where the verdict has changed; write what came of it as outputs."""
    job = _job(environ)
    try:
        state, number, why = _offered(api, environ, job, file)
        status = FINE
    except RemoteGpuError as error:
        state, number, why, status = "", 0, str(error), BAD
    told = {"state": state, "number": str(number or ""), "why": " ".join(why.split())}
    runner.write_outputs(environ, told)
    print(runner.annotation("error" if status else "notice", why or f"{state} {number or ''}"))
    return status


def _offered(
    api: Api, environ: Mapping[str, str], job: wording.Job, file: Path
) -> tuple[str, int, str]:
    base, config = environ.get("BASE", ""), environ.get("CONFIG", "").replace("{card}", job.card)
    if not config:
        return "none", 0, "no configuration is named by the repository's variable GPU_BENCH_CONFIG"
    if not base:
        return "none", 0, "there is no branch of this repository that they would be for"
    measured = documents.read(file)
    if faults := documents.find_faults(measured, job.card, job.margin):
        return "none", 0, "; ".join(faults)
    values = {key: measured.thresholds[key] for key in KEYS}
    known = {key: value for key, value in values.items() if value is not None}
    if not known:
        return "none", 0, "there were no data for any of them"
    title = f"Set the thresholds of FlashAttention-2 for {job.card}"

    def write(before: Mapping[str, object]) -> Text:
        had = {key: value for key, value in before.items() if type(value) is int}
        table = "\n".join(wording.changes(had, known))
        return Text(title, f"{table}\n\n{wording.report(job, measured, [])}".strip())

    place = Place(base, config, job.card)
    done: Outcome = propose(api, place, known, write, _login(environ))
    return done.state, done.number, ""


def _try_react(api: Api, environ: Mapping[str, str], reaction: str) -> None:
    """React; the comment may be gone, and that changes nothing that was said."""
    try:
        reactions.react(api, _number(environ, "COMMENT"), reaction, _login(environ))
    except RemoteGpuError as error:
        print(runner.annotation("warning", f"no reaction: {error}"))


def _job(environ: Mapping[str, str]) -> wording.Job:
    sha = environ.get("SHA", "")
    if not COMMIT.fullmatch(sha):
        raise UsageError(f"SHA is {sha!r}; a commit is wanted")
    card = read_card(environ.get("CARD", ""), (environ.get("CARD", ""),))
    server = environ.get("GITHUB_SERVER_URL", "").rstrip("/")
    run = runner.order(environ)[0]
    url = f"{server}/{environ.get('GITHUB_REPOSITORY', '')}/actions/runs/{run}"
    result = environ.get("RESULT", "success")
    return wording.Job(card, read_margin(environ.get("MARGIN", "")), sha, url, result)


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not re.fullmatch("[1-9][0-9]{0,17}", text):
        raise UsageError(f"{name} is {text!r}; a number is wanted")
    return int(text)


def _login(environ: Mapping[str, str]) -> str:
    return environ.get("GPU_BENCH_LOGIN") or LOGIN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pytest_remotegpu.bench.github",
        description="Benchmarks that comments and dispatches on GitHub ask for.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, run, takes in (
        ("asked", asked, False),
        ("react", react, False),
        ("answer", answer, True),
        ("propose", offer, True),
    ):
        made = commands.add_parser(name, help=run.__doc__, description=run.__doc__)
        made.set_defaults(run=run, file=Path())
        if takes:
            made.add_argument("file", type=Path, metavar="FILE", help="fa2.json of the benchmark")
    return parser


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Do what a job asks for.

    :return: 0 where it is done, 1 where it is not or nothing was decided, 2 for a wrong call.
    """
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(open_api(environ), environ, options.file)
    except RemoteGpuError as error:
        print(runner.annotation("error", str(error)))
        return BAD
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
