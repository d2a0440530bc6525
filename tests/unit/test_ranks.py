"""One account of many: merging what ranks say, their names in words, their variables."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.protocol import events, frames
from pytest_remotegpu.protocol.plain import from_text, to_text
from pytest_remotegpu.worker.ranks.accounts import TEXT, End
from pytest_remotegpu.worker.ranks.gathered import Gathered
from pytest_remotegpu.worker.ranks.merge import Merger
from pytest_remotegpu.worker.ranks.variables import cleaned, meeting, of_rank
from pytest_remotegpu.worker.ranks.words import collective, folded, named, said_of

ENDINGS = ("passed", "failed", "skipped", "xfailed", "xpassed")
PHASES = ("setup", "call", "teardown")
ERROR: dict[str, Any] = {"reprcrash": None, "reprtraceback": {}, "sections": [], "chain": []}


def report(when: str, kind: str, at: float, text: str = "") -> events.Report:
    """Make a report as it comes from a rank."""
    outcome = {"xfailed": "skipped", "xpassed": "passed"}.get(kind, kind)
    data: dict[str, Any] = {"$report_type": "TestReport"}
    if kind == "failed":
        data |= {"longrepr": copy.deepcopy(ERROR), TEXT: text or "a traceback"}
    elif kind == "skipped":
        data |= {"longrepr": ("test.py", 1, f"Skipped: {text}"), TEXT: text}
    elif kind != "passed":
        data["wasxfail"] = "known"
    return events.Report(0, to_text(when), to_text(outcome), 0.1, at - 0.1, at, [b"a"], [], data)


def reports(kinds: Sequence[str], at: float = 1.0, text: str = "") -> list[events.Report]:
    """Make those of a test whose phases come to these ends, one second after the other."""
    setup, call, teardown = kinds
    said = [report("setup", setup, at, text)]
    if setup == "passed":
        said.append(report("call", call, at + 1, text))
    return [*said, report("teardown", teardown, at + 2, text)]


def merged(
    ranks: Sequence[Sequence[events.Report]],
    ends: dict[int, End] | None = None,
    *,
    finished: Sequence[bool] | None = None,
) -> list[Any]:
    """Merge what ranks have said, report by report in turn; what comes of it can travel."""
    merger = Merger(0, len(ranks))
    said: list[events.Event] = []
    for number in range(max(map(len, ranks), default=0)):
        for rank, told in enumerate(ranks):
            if number < len(told):
                merger.accounts[rank].report(told[number])
                said += merger.advance()
    for rank in range(len(ranks)):
        merger.accounts[rank].finished = finished is None or finished[rank]
    said += merger.finish(ends or {})
    found: list[Any] = frames.decode_events(frames.encode_events(said))
    assert merger.failures == sum(
        isinstance(event, events.Crashed) or event.outcome == b"failed"
        for event in found
        if isinstance(event, events.Crashed | events.Report)
    )
    return found


def shown(said: Sequence[Any]) -> list[tuple[str, str]]:
    """Give phase and outcome of each report."""
    return [
        (from_text(event.when), from_text(event.outcome))
        for event in said
        if isinstance(event, events.Report) and event.when is not None
    ]


kinds = st.tuples(
    st.sampled_from(["passed", "passed", "failed", "skipped"]),
    st.sampled_from(ENDINGS),
    st.sampled_from(["passed", "passed", "failed"]),
)
worlds = st.lists(kinds, min_size=1, max_size=5)


@given(worlds, st.data())
def test_passed_is_only_what_every_rank_has_passed(
    world: list[tuple[str, str, str]], data: st.DataObject
) -> None:
    complete = [data.draw(st.booleans() | st.just(True)) for _ in world]
    ranks = [reports(each, at=1 + number / 10) for number, each in enumerate(world)]
    cut = [
        told if whole else told[: data.draw(st.integers(0, len(told)))]
        for told, whole in zip(ranks, complete, strict=True)
    ]
    said = merged(cut, finished=complete)
    outcomes = shown(said)
    crashed = any(isinstance(event, events.Crashed) for event in said)
    all_passed = all(complete) and all(each == ("passed",) * 3 for each in world)
    green = outcomes == [(when, "passed") for when in PHASES] and not crashed
    xpassed = [each[1] for each in world]
    if set(xpassed) == {"xpassed"} and all(complete):
        all_passed = all(each[0] == each[2] == "passed" for each in world)
    assert green == all_passed
    # the user's side takes reports of each phase, once and in order, or a crash
    when = [phase for phase, _ in outcomes]
    assert when == sorted(set(when), key=PHASES.index)
    if not crashed:
        called = outcomes[0] == ("setup", "passed")
        assert when == (list(PHASES) if called else ["setup", "teardown"])
    failed = any(told.outcome == b"failed" for each in cut for told in each)
    assert crashed or not failed or any(outcome == "failed" for _, outcome in outcomes)


@given(st.permutations(range(4)), st.sampled_from(["setup", "call", "teardown"]))
def test_the_first_to_fail_gives_the_traceback(order: list[int], when: str) -> None:
    broken = tuple("failed" if phase == when else "passed" for phase in PHASES)
    ranks = [reports(broken, at=1 + order[n], text=f"traceback of {n}") for n in range(4)]
    said = merged(ranks)
    failed = [e for e in said if isinstance(e, events.Report) and e.outcome == b"failed"]
    assert len(failed) == 1
    assert failed[0].when == to_text(when)
    sections = failed[0].open["longrepr"]["sections"]
    first = order.index(0)
    assert sections[0][1].startswith(f"rank {first}: failed first, in {when}\n")
    assert {title for title, _, _ in sections[1:]} == {f"rank {n}" for n in {*range(4)} - {first}}
    assert f"traceback of {first}" not in str(sections)


def test_equal_tracebacks_are_folded() -> None:
    broken = ("passed", "failed", "passed")
    texts = ["at 0x7fa1ab41fdd0", *["at 0x7fa1ab41ffff"] * 6, "other"]
    said = merged([reports(broken, at=1 + n, text=text) for n, text in enumerate(texts)])
    (failed,) = [e for e in said if isinstance(e, events.Report) and e.outcome == b"failed"]
    summary, other = failed.open["longrepr"]["sections"]
    assert summary[0] == "8 ranks"
    assert summary[1].splitlines() == [
        "rank 0: failed first, in call",
        "ranks 1-6: same",
        "rank 7: failed in call",
    ]
    assert other[:2] == ("rank 7", "other")


def test_a_death_stands_above_what_it_brings_about() -> None:
    broken, fine = ("passed", "failed", "passed"), ("passed", "passed", "passed")
    torn = reports(broken, at=1, text="connection closed by peer")
    death = {1: End("was killed by SIGSEGV", at=2.2, stack="its stack")}
    said = merged([torn, reports(fine)[:1], torn], death, finished=[True, False, True])
    (crash,) = [event for event in said if isinstance(event, events.Crashed)]
    assert crash.cause == "rank 1 of 3 was killed by SIGSEGV"
    assert from_text(crash.stack).splitlines() == [
        "rank 1: was killed by SIGSEGV",
        "its stack",
        "",
        "ranks 0, 2: failed in call",
        "connection closed by peer",
    ]
    later = {1: End("was killed by SIGABRT", at=9.0)}
    said = merged([torn, reports(fine)[:1]], later, finished=[True, False])
    assert shown(said) == [("setup", "passed"), ("call", "failed"), ("teardown", "passed")]


def test_exit_without_a_report_is_never_a_pass() -> None:
    fine = reports(("passed",) * 3)
    (crash,) = [e for e in merged([fine, []]) if isinstance(e, events.Crashed)]
    assert crash.cause == "rank 1 of 2 came to its end without a report of each phase"
    (crash,) = [e for e in merged([[], []]) if isinstance(e, events.Crashed)]
    assert crash.cause.startswith("ranks 0-1 of 2 came to its end without")


def test_skips_for_several_reasons_tell_them_all() -> None:
    ranks = [reports(("skipped", "", "passed"), text=text) for text in ("no card", "no card", "x")]
    said = merged(ranks)
    assert shown(said) == [("setup", "skipped"), ("teardown", "passed")]
    assert said[0].open["longrepr"] == ("test.py", 1, "Skipped: ranks 0-1: no card; rank 2: x")


def test_each_attempt_is_told_once() -> None:
    attempts = [
        report("setup", "passed", 1.0),
        report("call", "rerun", 2.0, "not yet"),
        report("setup", "passed", 3.0),
        report("call", "passed", 4.0),
        report("teardown", "passed", 5.0),
    ]
    assert shown(merged([attempts, attempts])) == [
        ("setup", "passed"),
        ("call", "rerun"),
        ("setup", "passed"),
        ("call", "passed"),
        ("teardown", "passed"),
    ]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_is_said_where_another_rank_ends_the_session(failing: int) -> None:
    merger = Merger(0, 2)
    for account in merger.accounts:
        account.report(report("setup", "passed", 1.0))
        kind = "failed" if account.rank == failing else "passed"
        account.report(report("call", kind, 2.0 + (account.rank != failing)))
    said = merger.advance() + merger.rest()
    assert shown(said) == [("setup", "passed"), ("call", "failed")]
    assert merger.failures == 1


def test_output_is_given_once_where_it_is_the_same() -> None:
    merger = Merger(3, 3)
    for rank, text in enumerate([b"alike", b"alike", b"other"]):
        account = merger.accounts[rank]
        account.section(events.Section(3, 0, b"Captured stdout call", text[:2], last=False))
        account.section(events.Section(3, 0, b"Captured stdout call", text[2:]))
        for told in reports(("passed",) * 3):
            places = [] if told.when == b"setup" else [0]
            account.report(msgspec.structs.replace(told, sections=places))
        account.finished = True
    said = merger.finish({})
    sections = [(e.name, e.text) for e in said if isinstance(e, events.Section)]
    assert sections == [
        (b"Captured stdout call [ranks 0-1]", b"alike"),
        (b"Captured stdout call [rank 2]", b"other"),
    ]
    assert [e.sections for e in said if isinstance(e, events.Report)] == [[], [0, 1], [0, 1]]


def test_tests_that_are_not_everywhere_are_errors() -> None:
    gathered = Gathered(3)
    for rank in (1, 2):
        gathered.take(rank, events.NotFound(4, b"no such id"))
    for rank in range(3):
        gathered.take(rank, events.SkippedThere(5, b"t.py", 1, b"no torch"))
        gathered.take(rank, events.CollectFailed(b"t.py", b"boom"))
    gathered.take(2, events.CollectFailed(b"u.py", b"only here"))
    said = gathered.collected()
    assert gathered.absent == {4, 5}
    assert events.SkippedThere(5, b"t.py", 1, b"no torch") in said
    assert events.CollectFailed(b"t.py", b"boom") in said
    assert events.CollectFailed(b"u.py", b"on rank 2: only here") in said
    (missing,) = [event for event in said if isinstance(event, events.NotFound)]
    text = from_text(missing.text)
    assert "do not agree" in text
    assert "rank 0 found it; rank 1 did not: no such id; rank 2 did not: no such id" in text


@given(st.sets(st.integers(0, 40), min_size=1))
def test_ranks_in_words_name_each_of_them(ranks: set[int]) -> None:
    text = named(ranks)
    found: set[int] = set()
    for part in text.removeprefix("ranks ").removeprefix("rank ").split(", "):
        first, _, last = part.partition("-")
        found |= {*range(int(first), int(last or first) + 1)}
    assert found == ranks
    assert text.startswith("ranks ") == (len(ranks) > 1)


@given(st.dictionaries(st.integers(0, 9), st.sampled_from(["a", "b", "at 0xabcdef1"]), min_size=1))
def test_folding_loses_nobody(texts: dict[int, str]) -> None:
    found = folded(texts)
    assert sorted(rank for ranks, _ in found for rank in ranks) == sorted(texts)
    assert all(texts[rank] == text for ranks, text in found for rank in ranks)


def test_what_ranks_did_is_said_in_grammatical_words() -> None:
    assert said_of([1], "was killed", 2) == "rank 1 of 2 was killed"
    assert said_of([0, 1], "was killed", 2) == "ranks 0-1 of 2 were killed"
    assert said_of([0, 1], "passed") == "ranks 0-1 passed"


@pytest.mark.parametrize(
    ("frames_of_it", "name"),
    [
        (
            ["/lib/torch/distributed/distributed_c10d.py all_reduce", "/x/test_a.py test"],
            "all_reduce",
        ),
        (
            [
                "/lib/torch/distributed/rendezvous.py _create_c10d_store",
                "/lib/torch/distributed/distributed_c10d.py init_process_group",
                "/lib/torch/distributed/c10d_logger.py wrapper",
                "/x/test_a.py test",
                "/lib/torch/distributed/other.py never",
            ],
            "init_process_group",
        ),
        (["/lib/threading.py wait", "/lib/torch/distributed/a.py barrier", "/x/a.py t"], "barrier"),
        (["/x/test_a.py test"], ""),
        ([], ""),
    ],
)
def test_the_collective_is_named(frames_of_it: list[str], name: str) -> None:
    lines = [(*line.split(),) for line in frames_of_it]
    stack = "\n".join(f'  File "{file}", line 3 in {function}' for file, function in lines)
    assert collective(f"Current thread 0x00 (most recent call first):\n{stack}\n") == name


def test_variables_of_a_rank() -> None:
    outer = {"RANK": "7", "SLURM_PROCID": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "1",
             "PMI_RANK": "0", "MASTER_ADDR": "there", "TORCHELASTIC_RUN_ID": "x"}  # fmt: skip
    kept = {"PATH": "p", "NCCL_DEBUG": "INFO", "RANKING": "1", "MY_RANK": "2"}
    assert cleaned({**outer, **kept}) == kept
    found = {**of_rank(1, 4, "run"), **meeting(1234, store=True)}
    assert found["RANK"] == found["LOCAL_RANK"] == "1"
    assert found["WORLD_SIZE"] == found["LOCAL_WORLD_SIZE"] == "4"
    assert (found["GROUP_RANK"], found["MASTER_PORT"]) == ("0", "1234")
    assert found["TORCHELASTIC_USE_AGENT_STORE"] == "True"
    assert not cleaned(found)
