"""The workflow for benchmarks: which job may what, and all of it run against a GitHub of ours.

What the jobs decide is tested in ``bench/github``. Only other people's actions, pip and the
benchmark itself are stood in for.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import workflows
from hub import actions, events
from hub.server import TOKEN, Hub, serve
from hub.state import BOT, REPOSITORY
from pytest_remotegpu.backends.modal import table
from pytest_remotegpu.bench.github.judging import Decision

TEXT = workflows.read("gpu-bench.yml")
JOBS = workflows.split(TEXT)
SHA = "${{ needs.asked.outputs.sha }}"
OURS = r"python -I -m pytest_remotegpu\.bench\.github"
TRUSTED = ["asked", "propose", "answer"]


def test_jobs_are_the_ones_that_are_looked_at_here() -> None:
    assert list(JOBS) == ["asked", "bench", "propose", "answer"]
    assert [len(workflows.scripts(job)) for job in JOBS.values()] == [3, 3, 2, 2]


@pytest.mark.parametrize(
    ("job", "permissions"),
    [
        ("asked", {"contents": "read", "pull-requests": "write"}),
        ("bench", {"contents": "read"}),
        ("propose", {"contents": "write", "pull-requests": "write"}),
        ("answer", {"contents": "read", "pull-requests": "write"}),
    ],
)
def test_each_job_may_what_it_needs(job: str, permissions: dict[str, str]) -> None:
    assert workflows.permissions(JOBS[job]) == permissions


@pytest.mark.parametrize("job", TRUSTED)
def test_jobs_with_rights_run_the_base_branch_only(job: str) -> None:
    text = JOBS[job]
    used = {name.removeprefix("actions/") for name in re.findall(r"uses: ([\w/-]+)@", text)}
    assert used <= {"checkout", "setup-python", "download-artifact"}
    assert not re.search(r"\b(ref|repository|secrets|environment)\b[:.]", text)
    assert "unsafe" not in text
    install, *rest = workflows.scripts(text)
    assert install == 'python -m pip install "$TOOL"'
    command = rf'{OURS} (asked|react|(propose|answer) "\$RUNNER_TEMP/fa2/fa2\.json")'
    assert [script for script in rest if not re.fullmatch(command, script)] == []


def test_secrets_belong_to_the_environment_of_the_job_that_measures() -> None:
    text = JOBS["bench"]
    assert TEXT.count("secrets.") == text.count("secrets.") == 4
    assert len(re.findall(r"^          MODAL_TOKEN_\w+: \$\{\{ secrets\.", text, re.MULTILINE)) == 4
    assert "\n    environment: gpu-bench\n" in text
    assert "\n    needs: [asked]\n    if: needs.asked.outputs.allowed == 'true'\n" in text
    assert "github.token" not in text


def test_what_is_checked_out_is_what_was_settled() -> None:
    assert re.findall(r"\bref: (.*)", TEXT) == [SHA]
    assert re.findall(r"\bref: (.*)", JOBS["bench"]) == [SHA]
    assert JOBS["bench"].count("actions/checkout@") == 1
    assert "github.event" not in JOBS["bench"]
    assert "github.head" not in TEXT


def test_comment_goes_into_no_step() -> None:
    assert TEXT.count("github.event.") == 2
    assert TEXT.count("comment.body") == 1
    (condition,) = re.findall(r"^    if: >-\n((?:      .*\n)+)", JOBS["asked"], re.MULTILINE)
    assert condition.count("github.event.") == 2


@pytest.mark.parametrize("job", JOBS)
def test_no_shell_sees_text_that_is_put_into_it(job: str) -> None:
    assert [script for script in workflows.scripts(JOBS[job]) if "${{" in script] == []


def test_nothing_is_cached() -> None:
    assert "cache" not in "".join(JOBS.values())


def test_cards_to_ask_for_are_known_and_new_enough() -> None:
    (options,) = re.findall(r"options: \[(.*)\]", TEXT)
    (cards,) = re.findall(r"^  CARDS: (.*)$", TEXT, re.MULTILINE)
    assert cards.split() == options.split(", ")
    found = [table.find(name) for name in cards.split()]
    assert [each for each in found if each is None or each.capability < 8] == []


def test_cap_lets_each_card_run_as_long_as_the_limit_does() -> None:
    (cap,) = re.findall(r"GPU_BENCH_MAX_COST \|\| '(\d+)'", TEXT)
    (limit,) = re.findall(r"--remote-run-timeout=(\d+)", TEXT)
    (cards,) = re.findall(r"^  CARDS: (.*)$", TEXT, re.MULTILINE)
    rates = [found.usd_per_second for name in cards.split() if (found := table.find(name))]
    assert [rate for rate in rates if rate is None] == []
    most = max(rate for rate in rates if rate is not None) * int(limit)
    assert 1.2 * most < float(cap)  # CPU cores and memory come on top


def test_outputs_are_those_that_are_written() -> None:
    written = Decision(False, "").outputs().keys()
    assert set(re.findall(r"steps\.judge\.outputs\.(\w+)", TEXT)) == written
    handed_on = set(re.findall(r"^      (\w+): \$\{\{ steps\.judge", JOBS["asked"], re.MULTILINE))
    assert set(re.findall(r"needs\.asked\.outputs\.(\w+)", TEXT)) == handed_on


def test_each_queue_is_of_one_pull_request_and_card() -> None:
    groups = re.findall(r"group: (.*)", "".join(JOBS.values()))
    assert len(set(groups)) == 4
    assert "github.run_id" in groups[0]
    assert [group for group in groups[1:] if "outputs.card" not in group] == []
    assert not re.search(r"^concurrency:", TEXT, re.MULTILINE)


@pytest.mark.skipif(sys.platform == "win32", reason="the job runs on Linux")
def test_the_command_takes_the_place_of_the_shell(tmp_path: Path) -> None:
    (script,) = [each for each in workflows.scripts(JOBS["bench"]) if "bench fa2" in each]
    told = {"CARD": "$(touch owned)", "MARGIN": "1.2; `touch owned`", "MAX_COST": "$2"}
    pid, arguments = workflows.run(script, "remotegpu", tmp_path, told)
    assert pid
    remote, margin = "--remote=modal:$(touch owned)", "--margin=1.2; `touch owned`"
    more = ["--remote-max-cost=$2", "--remote-run-timeout=1800", "--remote-ephemeral"]
    assert arguments == ["bench", "fa2", remote, margin, "--out", "/temp/fa2", *more]
    assert not (tmp_path / "owned").exists()


# all of it

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the jobs run on Linux")
PATH, BRANCH = "conf.yaml", "remotegpu-bench/A100/patch"


@pytest.fixture
def hub() -> Iterator[Hub]:
    """Serve a repository with pull request 7 and a comment of ann, who may write."""
    with serve() as served:
        repo = served.repo
        files = {PATH: ("100644", b"runtime:\n  fa2_min_len_win: 512\n")}
        repo.branches["patch"] = repo.commit("main", files)
        head = repo.commit("patch", {**files, "a.py": ("100644", b"pass\n")})
        repo.open_pull(events.NUMBER, "patch", head)
        repo.pushed("patch", head, events.BEFORE)
        repo.permissions["ann"] = ("write", "write")
        repo.comments[501] = {"id": 501, "issue": 7, "user": {"login": "ann"}, "body": "x"}
        yield served
        assert served.complaints == []


Run = Callable[..., dict[str, actions.Job]]


@pytest.fixture
def run(hub: Hub, tmp_path: Path) -> Run:
    """Return a function that runs the workflow for an event."""
    bin_, number = tmp_path / "bin", 0
    own = f'case "$1$2$3" in -mpippip*|-mpipinstall) ;; *) exec {sys.executable} "$@" ;; esac'
    actions.stand_in(bin_, "python", own)

    def go(event: Any, name: str = "issue_comment", measured: Any = None, **context: Any) -> Any:
        nonlocal number
        number += 1
        place = tmp_path / f"run{number}" / "jobs"
        place.mkdir(parents=True)
        (place.parent / "event.json").write_text(json.dumps(event), encoding="utf-8")
        (place.parent / "fa2.json").write_text(json.dumps(measured), encoding="utf-8")
        made = "exit 3" if measured is None else f'mkdir "$6"; cp {place.parent}/fa2.json "$6"'
        log = f'echo "$@" >> {place.parent}/measured'
        ended = '[ "$1" = stop ] && exit 0'
        actions.stand_in(bin_, "remotegpu", f"{ended}\n{log}\n{made}")
        github = {
            "event_name": name,
            "event": event,
            "workflow": "gpu-bench",
            "run_id": str(90 + number),
            "run_attempt": "1",
            "ref": "refs/heads/main",
            "token": TOKEN,
        }
        environ = {
            "PATH": actions.path_with(bin_),
            "NO_PROXY": "127.0.0.1",
            "GITHUB_API_URL": hub.url,
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_EVENT_NAME": name,
            "GITHUB_EVENT_PATH": str(place.parent / "event.json"),
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_RUN_ID": github["run_id"],
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_REF": "refs/heads/main",
            "GITHUB_SHA": hub.repo.branches["main"],
        }
        told = {
            "github": github,
            "inputs": {},
            "vars": {"GPU_BENCH_CONFIG": PATH},
            "secrets": {"MODAL_TOKEN_ID": "a", "MODAL_TOKEN_SECRET": "b"},
            **context,
        }
        runner = actions.Runner(workflows.FOLDER / "gpu-bench.yml", place, told, environ)
        return runner.run()

    return go


def bodies(hub: Hub) -> list[str]:
    """Give the bodies of our comments."""
    return [each["body"] for each in hub.repo.comments.values() if each["user"]["login"] == BOT]


def test_comment_is_measured_answered_and_proposed(run: Run, hub: Hub, tmp_path: Path) -> None:
    jobs = run(events.comment("/benchmark A100 1.5"), measured=events.document())
    assert {name: job.result for name, job in jobs.items()} == dict.fromkeys(JOBS, "success"), jobs
    head = hub.repo.pulls[7]["head"]["sha"]
    assert jobs["asked"].outputs["sha"] == head
    told = (tmp_path / "run1" / "measured").read_text("utf-8")
    assert told.startswith("bench fa2 --remote=modal:A100 --margin=1.5 --out /")
    number = jobs["propose"].outputs["number"]
    (body,) = bodies(hub)
    assert f"The verdict has changed: new thresholds are proposed in #{number}." in body
    assert f"Margin 1.5 (50 % faster), commit <code>{head}</code>" in body
    assert "**from 1024**" in jobs["answer"].page
    assert hub.repo.pulls[int(number)]["base"]["ref"] == "patch"
    assert b"fa2_min_len_win: 1024" in hub.repo.content(BRANCH, PATH)
    assert [each["content"] for each in hub.repo.reactions.values()] == ["rocket"]
    run(events.comment("/benchmark A100 1.5"), measured=events.document())
    assert len(bodies(hub)) == 1
    assert len([each for each in hub.repo.pulls.values() if each["user"]["login"] == BOT]) == 1


def test_benchmark_that_fails_is_said_and_proposes_nothing(run: Run, hub: Hub) -> None:
    jobs = run(events.comment("/benchmark A100"), measured=None)
    results = {name: job.result for name, job in jobs.items()}
    assert results == {
        "asked": "success",
        "bench": "failure",
        "propose": "skipped",
        "answer": "failure",
    }
    assert "**The benchmark failed.** No thresholds:" in bodies(hub)[0]
    assert [each["content"] for each in hub.repo.reactions.values()] == ["confused"]
    assert list(hub.repo.branches) == ["main", "patch"]


@pytest.mark.parametrize("body", ["/benchmark A100; rm -rf /", "/benchmark $(touch owned)"])
def test_hostile_comment_runs_nothing(run: Run, hub: Hub, tmp_path: Path, body: str) -> None:
    jobs = run(events.comment(body), measured=events.document())
    assert [job.result for job in jobs.values()] == ["success", "skipped", "skipped", "skipped"]
    assert not (tmp_path / "run1" / "measured").exists()
    assert list(tmp_path.rglob("owned")) == []
    assert "**Not run:**" in bodies(hub)[0]
    assert [each["content"] for each in hub.repo.reactions.values()] == ["confused"]


def test_stranger_runs_nothing(run: Run, hub: Hub) -> None:
    hub.repo.permissions["bob"] = ("read", "triage")
    jobs = run(events.comment("/benchmark A100", "bob"), measured=events.document())
    assert [job.result for job in jobs.values()] == ["success", "skipped", "skipped", "skipped"]
    assert bodies(hub) == []


@pytest.mark.parametrize("body", ["hello", "I /benchmark A100"])
def test_other_comments_start_no_job(run: Run, hub: Hub, body: str) -> None:
    jobs = run(events.comment(body))
    assert {job.result for job in jobs.values()} == {"skipped"}
    assert hub.asked == []


def test_comment_on_an_issue_starts_no_job(run: Run) -> None:
    event = events.comment("/benchmark A100")
    del event["issue"]["pull_request"]
    assert {job.result for job in run(event).values()} == {"skipped"}


def test_dispatch_is_measured_and_proposed(run: Run, hub: Hub) -> None:
    given = {"card": "A100", "margin": "1.1"}
    jobs = run({}, "workflow_dispatch", measured=events.document(), inputs=given)
    assert {name: job.result for name, job in jobs.items()} == dict.fromkeys(JOBS, "success"), jobs
    assert bodies(hub) == []
    assert "Margin 1.1 (10 % faster)" in jobs["answer"].page
    assert b"fa2_min_len_win: 1024" in hub.repo.content("remotegpu-bench/A100/main", PATH)


def test_dispatch_without_a_configuration_proposes_nothing(run: Run, hub: Hub) -> None:
    given = {"card": "A100", "margin": ""}
    jobs = run({}, "workflow_dispatch", measured=events.document(), inputs=given, vars={})
    assert {job.result for job in jobs.values()} == {"success"}
    assert "Margin 1.2 (20 % faster)" in jobs["answer"].page
    assert "GPU&#95;BENCH&#95;CONFIG" in jobs["answer"].page
    assert hub.writes() == []
