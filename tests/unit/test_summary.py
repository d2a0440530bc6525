"""The closing summary as data and as lines."""

from __future__ import annotations

import json

from pytest_remotegpu.cost import Rate, WorkerCost
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.summary import MOST_PHASES, RunSummary


def test_nothing_to_say() -> None:
    assert list(RunSummary().lines()) == []


def test_shapes_in_order_with_their_longest_test() -> None:
    summary = RunSummary(where="this host's CPU")
    summary.of(Shape(2)).workers += 2
    summary.of(Shape(1)).workers += 1
    summary.ran(Shape(2), "t.py::long", 2.5)
    summary.ran(Shape(2), "t.py::short", 0.25)
    summary.ran(Shape(1), "t.py::one", 0.125)
    one, two, where = summary.lines()
    assert one.split("   ") == ["1 GPU", "1 worker", "1 test", "0.12 s", "longest 0.12 s t.py::one"]
    assert two.split("   ") == [
        "2 GPUs",
        "2 workers",
        "2 tests",
        "2.75 s",
        "longest 2.50 s t.py::long",
    ]
    assert where == "on this host's CPU (no GPU was used)"


def test_a_shape_whose_tests_never_came_back_is_listed() -> None:
    summary = RunSummary()
    summary.of(Shape(4)).workers += 3
    (line,) = summary.lines()
    assert line.startswith("4 GPUs   3 workers   0 tests   0.00 s")


def test_real_gpus_are_not_denied() -> None:
    assert list(RunSummary(where="ssh:gpubox", real=True).lines()) == ["on ssh:gpubox"]


def test_what_was_sent_and_what_came_back() -> None:
    given = RunSummary(sent_files=3, sent_bytes=2560, artifacts=2, artifacts_dir="/a")
    lines = list(given.lines())
    assert lines[0] == "sent 3 files, 2.5 KiB"
    assert "2" in lines[1]
    assert "/a" in lines[1]


def test_cards_are_named_once_each() -> None:
    summary = RunSummary(where="this host", real=True)
    summary.use(["B (GPU-2)", "A (GPU-1)"])
    summary.use(["A (GPU-1)"])
    assert list(summary.lines()) == ["on this host: B (GPU-2), A (GPU-1)"]


def told(began: float, *ids: str) -> RunSummary:
    """Make the summary of one of several processes, whose tests took a second each."""
    odd = Shape(2, type=("A", "B"), env=(("NAME", "v"),))
    summary = RunSummary(where="w", cards=["A (1)"], sent_files=1, sent_bytes=10, began=began)
    summary.of(odd).workers += 1
    for id in ids:
        summary.ran(odd, id, 1.0)
        summary.artifact_names.append(f"{id}/x")
        summary.artifacts += 1
    summary.note("n")
    summary.blame("c \udc80")
    summary.phase("w-1", "hello", 1.0, 0.5)
    rate = Rate(36.0, "2026-01-01", "a page", 10.0)
    summary.workers.append(WorkerCost("w-1", odd, "A (1)", len(ids), 1.0, 2.0, 3.0, 15.0, rate))
    summary.workers.append(WorkerCost("w-2", Shape(), "", 0, 1.0, 1.0, 0.0, 0.0))
    summary.worst = 0.5
    summary.charged((number / 8, 1.0 + number, id) for number, id in enumerate(ids, 1))
    return summary


def test_the_dearest_tests_where_machines_are_rented() -> None:
    """Of several processes together, three at most; none with -q, and none of one's own machine."""
    whole = RunSummary()
    for ids in (("t::a", "t::b"), ("t::c", "t::d", "t::e")):
        whole.add(told(1.0, *ids))
    assert "dearest tests:" not in list(whole.lines())
    whole.rents = True
    lines = list(whole.lines())
    place = lines.index("dearest tests:")
    assert lines[place + 1 : place + 5] == [
        "  $0.375   4.00 s   t::e",
        "  $0.250   3.00 s   t::b",
        "  $0.250   3.00 s   t::d",
        next(line for line in lines if line.startswith("sent")),
    ]
    assert list(whole.lines(quiet=True)) == lines[:place] + lines[place + 4 :]
    alone = RunSummary(rents=True)
    alone.add(told(1.0, "t::a"))
    assert "dearest tests:" not in list(alone.lines())


def test_plain_data_survives_the_way_between_processes() -> None:
    summary = told(5.0, "t::a")
    carried = json.loads(json.dumps(summary.to_plain()))
    assert RunSummary.from_plain(carried) == summary


def test_several_processes_make_one_summary() -> None:
    whole = RunSummary(began=100.0)
    whole.add(told(102.0, "t::a", "t::b"))
    whole.add(told(103.0, "t::c"))
    (part,) = whole.shapes.values()
    assert (part.workers, part.tests, part.seconds) == (2, 3, 3.0)
    assert part.slowest == (1.0, "t::c")
    assert (whole.where, whole.cards) == ("w", ["A (1)"])
    assert (whole.sent_files, whole.sent_bytes, whole.artifacts) == (2, 20, 3)
    assert whole.artifact_names == ["t::a/x", "t::b/x", "t::c/x"]
    assert (whole.notes, whole.causes) == (["n"], ["c \udc80"])
    assert [phase.start for phase in whole.phases] == [3.0, 4.0]
    assert [worker.opened for worker in whole.workers] == [3.0, 3.0, 4.0, 4.0]
    assert whole.worst == 0.5


def test_a_shape_says_what_it_cost_and_the_run_what_of_it_was_what() -> None:
    (line, _where, money, *_rest) = told(5.0, "t::a").lines()
    assert line.startswith(
        "2 GPUs (A or B, NAME=v)   1 worker   1 test   1.00 s   $0.200   longest"
    )
    assert money == (
        "cost: about $0.200 (tests $0.030, start $0.020, idle $0.150) of at most $0.500, "
        "by prices of 2026-01-01 (a page); the price of 1 more is not known"
    )


def test_phases_are_bounded() -> None:
    summary = RunSummary()
    for _ in range(MOST_PHASES + 1):
        summary.phase("w", "p", 0.0, 0.0)
    assert len(summary.phases) == MOST_PHASES


def test_notes_and_causes_once_each_and_never_empty() -> None:
    summary = RunSummary()
    for text in ("b", "a", "b", ""):
        summary.note(text)
        summary.blame(text)
    assert list(summary.lines()) == ["note: b", "note: a", "cause: b", "cause: a"]


def test_two_summaries_share_nothing() -> None:
    RunSummary().note("mine")
    RunSummary().of(Shape(1))
    assert list(RunSummary().lines()) == []


def test_the_largest_peak_of_each_shape_and_the_largest_leaks() -> None:
    summary = RunSummary()
    for at in range(7):
        summary.used(Shape(1), f"t.py::t{at}", peak=at << 29, leaked=at << 20)
    summary.used(Shape(2), "t.py::small", peak=2048, leaked=-5)
    summary.used(Shape(4), "t.py::none", peak=0, leaked=0)
    one, two, four, *notes = summary.lines()
    assert one.endswith("   peak 3.0 GiB t.py::t6")
    assert two.endswith("   peak 2.0 KiB t.py::small")
    assert "peak" not in four
    assert notes == [
        f"note: GPU memory grew by {at}.0 MiB in t.py::t{at} and stayed" for at in (6, 5, 4, 3, 2)
    ]


def test_memory_of_several_processes_comes_together() -> None:
    ours, theirs = RunSummary(), RunSummary()
    ours.used(Shape(1), "t.py::a", peak=5 << 20, leaked=3 << 20)
    theirs.used(Shape(1), "t.py::b", peak=6 << 20, leaked=4 << 20)
    ours.add(RunSummary.from_plain(theirs.to_plain()))
    first, *notes = ours.lines()
    assert first.endswith("peak 6.0 MiB t.py::b")
    assert [note.split()[-3] for note in notes] == ["t.py::b", "t.py::a"]
