"""What goes where: stretches, counts, near misses and the text of the plan."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu import plan
from pytest_remotegpu.config import Setting
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.plan import Stretch

ONE, TWO = Shape(1), Shape(2)
lists = st.lists(st.none() | st.builds(Shape, st.integers(0, 3)))


def test_stretches_follow_the_order() -> None:
    assert plan.stretches([None, ONE, ONE, TWO, None, ONE]) == [
        Stretch(None, 0, 1),
        Stretch(ONE, 1, 3),
        Stretch(TWO, 3, 4),
        Stretch(None, 4, 5),
        Stretch(ONE, 5, 6),
    ]


@given(lists)
def test_stretches_hold_each_test_once_and_are_as_long_as_can_be(
    shapes: list[Shape | None],
) -> None:
    found = plan.stretches(shapes)
    assert [s.shape for s in found for _ in range(s.first, s.last)] == shapes
    assert [s.first for s in found] == [0, *(s.last for s in found)][: len(found)]
    assert all(a.shape != b.shape for a, b in pairwise(found))


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ([], "0 here"),
        ([None], "1 here"),
        ([ONE], "1 test on 1 GPU"),
        ([ONE, ONE, ONE, TWO, None], "3 tests on 1 GPU, 1 on 2 GPUs, 1 here"),
        ([TWO, Shape(0), Shape(0)], "2 tests on no GPU, 1 on 2 GPUs"),
    ],
)
def test_counts(shapes: list[Shape | None], text: str) -> None:
    assert plan.counts(shapes) == text


@pytest.mark.parametrize("name", ["gpus", "gp", "GPU", "Gpu", "gpuu", "ggpu"])
def test_a_slip_is_pointed_out(name: str) -> None:
    (line,) = plan.near_misses([name], ["gpu"])
    assert repr(name) in line
    assert "did you mean 'gpu'?" in line


@pytest.mark.parametrize("name", plan.FOREIGN)
def test_a_marker_in_use_elsewhere_gets_its_alias(name: str) -> None:
    (line,) = plan.near_misses([name], ["gpu"])
    assert f"{name} = gpu" in line


@pytest.mark.parametrize("name", ["gpu", "cpu", "slow", "parametrize", "tpu", "skipif", "g"])
def test_other_markers_are_left_alone(name: str) -> None:
    assert plan.near_misses([name], ["gpu"]) == []


def test_an_alias_has_near_misses_too_and_each_is_told_once() -> None:
    lines = plan.near_misses(["on_cuda", "oncuda", "slow", "oncuda"], ["gpu", "on_cuda"])
    assert lines == ["marker 'oncuda' ships nothing; did you mean 'on_cuda'?"]


def test_the_plan_names_settings_with_origin_and_each_test_in_order() -> None:
    lines = plan.describe(
        ["a", "b", "c"],
        [ONE, None, TWO],
        [
            Setting("remote", "ssh:box", "ini file, remotegpu"),
            Setting("all", value=False, origin="default"),
        ],
        "ssh:box",
        "3 files, 120 bytes",
    )  # fmt: skip
    text = "\n".join(lines)
    assert "remote        'ssh:box'                    (ini file, remotegpu)" in text
    assert "all           False                        (default)" in text
    assert "far side: ssh:box\nupload: 3 files, 120 bytes\ntests: 1 test on 1 GPU" in text
    assert [line.split() for line in lines[-3:]] == [
        ["far,", "1", "GPU", "a"],
        ["here", "b"],
        ["far,", "2", "GPUs", "c"],
    ]


def test_without_a_far_side_nothing_goes_far() -> None:
    lines = plan.describe(["a", "b"], [ONE, None], [], None, "nothing")
    assert not any("far, " in line for line in lines)
    assert lines[-2].split() == ["here,", "1", "GPU", "a"]
