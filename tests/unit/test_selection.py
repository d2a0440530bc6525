"""Marks of tests become shapes; what is ill-formed is told for all tests at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from pytest_remotegpu import selection
from pytest_remotegpu.config import Settings, resolve
from pytest_remotegpu.errors import MarkerError, UsageError
from pytest_remotegpu.gpu import Shape


@dataclass
class FakeMark:
    """A mark, or with a call a mark with arguments."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> FakeMark:
        return FakeMark(self.name, args, kwargs)


gpu, slow, hpc, multi = (FakeMark(name) for name in ("gpu", "slow", "hpc", "multi"))


@dataclass
class FakeConfig:
    """Knows the ini value ``markers`` only."""

    markers: list[str]

    def getini(self, name: str) -> list[str]:
        assert name == "markers"
        return self.markers


@dataclass
class FakeCallspec:
    """The marks of a test's parameters; pytest repeats them among the test's own."""

    marks: list[FakeMark]


@dataclass(eq=False)
class FakeItem:
    """A test with marks, nearest first."""

    nodeid: str
    marks: list[FakeMark]
    callspec: FakeCallspec | None = None
    config: FakeConfig = field(default_factory=lambda: FakeConfig([selection.OWN_LINE]))

    def iter_markers(self) -> Iterator[FakeMark]:
        return iter(self.marks)


def item(*marks: FakeMark, nodeid: str = "t.py::test", own: bool = False) -> pytest.Item:
    config = FakeConfig(["gpu: needs a card", selection.OWN_LINE] if own else [selection.OWN_LINE])
    return cast("pytest.Item", FakeItem(nodeid, list(marks), config=config))


def settings(**cli: Any) -> Settings:
    return resolve(cli, {}, {"remotegpu_aliases": ["hpc = gpu", "multi = gpu(4)"]})


@pytest.mark.parametrize(
    ("marks", "shape"),
    [
        ([], None),
        ([slow], None),
        ([gpu], Shape(1)),
        ([gpu(2)], Shape(2)),
        ([gpu, gpu(2)], Shape(2)),
        ([gpu(3), slow, gpu(2)], Shape(3)),
        ([hpc], Shape(1)),
        ([multi], Shape(4)),
        ([gpu(2), multi], Shape(2)),
        ([multi, gpu(2)], Shape(4)),
        ([hpc("own argument"), gpu(2)], Shape(2)),
        ([gpu(type="L4"), gpu(2, type=["T4"], min_memory_gib=9)], Shape(2, ("L4",), 9.0)),
        (
            [gpu(env={"A": "1"}), gpu(env={"A": "2", "B": "3"})],
            Shape(1, env=(("A", "1"), ("B", "3"))),
        ),
    ],
)
def test_shapes(marks: list[FakeMark], shape: Shape | None) -> None:
    assert selection.shape_of(item(*marks), settings().aliases) == shape
    assert selection.shapes_of([item(*marks)], settings()) == [shape]


def test_a_parameter_is_nearer_than_its_function() -> None:
    test = FakeItem("t.py::test[4]", [gpu(2), gpu(4)], callspec=FakeCallspec([gpu(4)]))
    assert selection.shape_of(cast("pytest.Item", test), {}) == Shape(4)


def test_without_an_alias_its_marker_means_nothing() -> None:
    assert selection.shape_of(item(hpc), {}) is None


def test_all_are_shipped_where_that_is_asked_for() -> None:
    everything = settings(remote_all=True)
    tests = [item(), item(gpu(3)), item(gpu(2)), item(slow)]
    assert selection.shapes_of(tests, everything) == [Shape(2), Shape(3), Shape(2), Shape(2)]
    assert selection.shapes_of([item(), item(slow)], everything) == [Shape(0), Shape(0)]
    lent = Shape(1, ("L4",))
    assert selection.shapes_of([item(), item(slow)], everything, spare=lent) == [lent, lent]
    assert selection.shapes_of(tests, everything, spare=lent)[0] == Shape(2)


ENV = {"env": {"A": "1"}}


@pytest.mark.parametrize(
    ("marks", "least"),
    [
        ([gpu(type="L4"), gpu(2)], Shape(2)),
        ([gpu(min_memory_gib=1), gpu(3), gpu(2), gpu(1, **ENV)], Shape(2)),
        ([gpu(2, type="L4"), gpu(min_capability=8)], Shape(1, min_capability=8.0)),
        ([gpu(2, type="L4"), gpu(**ENV)], Shape(2, ("L4",))),
        ([gpu(**ENV), gpu(2, **ENV)], Shape(0)),
    ],
)
def test_tests_without_a_mark_go_where_nothing_special_was_asked_for(
    marks: list[FakeMark], least: Shape
) -> None:
    first, *others = selection.shapes_of([item(), *map(item, marks)], settings(remote_all=True))
    assert first == least
    assert others == [selection.shape_of(item(mark), {}) for mark in marks]


def test_limits_of_tests_that_set_one() -> None:
    plain, limited, inherited, nearest, aliased = tests = [
        item(gpu),
        item(gpu(timeout=3)),
        item(gpu(2), gpu(timeout=0.5)),
        item(gpu(timeout=7), gpu(timeout=9)),
        item(hpc),
    ]
    aliases = {"hpc": {"timeout": 4}}
    tests = [item(), item(slow), *tests]
    limits = {test: selection.rules_of(test, aliases).timeout for test in tests}
    found = {test: limit for test, limit in limits.items() if limit is not None}
    assert found == {limited: 3.0, inherited: 0.5, nearest: 7.0, aliased: 4.0}
    assert limits[plain] is None
    assert all(isinstance(limit, float) for limit in found.values())


def test_a_limit_of_a_parameter_is_nearer_than_its_functions() -> None:
    mark = gpu(timeout=4)
    test = FakeItem("t.py::test[4]", [gpu(timeout=2), mark], callspec=FakeCallspec([mark]))
    found = cast("pytest.Item", test)
    assert selection.rules_of(found, {}) == (4.0, False)


def test_a_test_that_is_to_be_alone() -> None:
    nearest = item(gpu(isolate=False), gpu(isolate=True))
    given = [item(), item(gpu), item(gpu(2), gpu(isolate=True)), nearest, item(hpc)]
    aliases = {"hpc": {"isolate": True}}
    found = [selection.rules_of(test, aliases).alone for test in given]
    assert found == [False, False, True, False, True]


def test_no_tests() -> None:
    assert selection.shapes_of([], settings()) == []


def test_an_ill_formed_mark_of_one_test() -> None:
    with pytest.raises(MarkerError, match="cuont"):
        selection.shape_of(item(gpu(cuont=2)), {})


def test_every_test_with_an_ill_formed_mark_is_named() -> None:
    marks = {"t.py::a": gpu(cuont=2), "t.py::b": gpu, "t.py::c": gpu("x")}
    tests = [item(mark, nodeid=nodeid) for nodeid, mark in marks.items()]
    with pytest.raises(UsageError) as caught:
        selection.shapes_of(tests, settings())
    lines = str(caught.value).splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["t.py::a", "t.py::c"]


def test_a_long_list_is_cut_and_says_so() -> None:
    tests = [item(gpu(0), nodeid=f"t.py::test[{n}]") for n in range(selection.MOST_ERRORS + 5)]
    with pytest.raises(UsageError) as caught:
        selection.shapes_of(tests, settings())
    *lines, last = str(caught.value).splitlines()
    assert len(lines) == selection.MOST_ERRORS
    assert last == "... and 5 more"


@pytest.mark.parametrize("own", [True, False])
def test_a_marker_of_the_projects_own_is_told_of_the_aliases(own: bool) -> None:
    with pytest.raises(UsageError) as caught:
        selection.shapes_of([item(gpu(memory=8), own=own)], settings())
    assert ("remotegpu_aliases" in str(caught.value)) is own


@pytest.mark.parametrize(
    ("lines", "own"),
    [
        ([], False),
        (["slow: takes long"], False),
        (["gpu: needs a card"], True),
        (["gpu"], True),
        (["  gpu(n): needs cards"], True),
        (["gpus: other", "gpu_test: other", "slow(gpu): other"], False),
        ([selection.OWN_LINE], False),
        ([selection.OWN_LINE, "gpu: needs a card"], True),
    ],
)
def test_whose_marker_it_is(lines: list[str], own: bool) -> None:
    assert selection.own_marker(lines) is own


def test_near_misses_are_told_of_tests_that_stay() -> None:
    tests = [item(FakeMark("gpus")), item(gpu, FakeMark("cuda")), item(FakeMark("hpcc"))]
    lines = selection.near_misses(tests, [None, Shape(1), None], settings())
    assert [line.split()[1] for line in lines] == ["'gpus'", "'hpcc'"]
