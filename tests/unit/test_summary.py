"""The closing summary as data and as lines."""

from __future__ import annotations

from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.summary import RunSummary


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
    lines = list(RunSummary(sent="sent 3 files", artifacts=2, artifacts_dir="/a").lines())
    assert lines[0] == "sent 3 files"
    assert "2" in lines[1]
    assert "/a" in lines[1]


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
