"""A far side that alone has the conftests lies about what their hooks have left."""

from __future__ import annotations

from typing import Any

import pytest

import fakes
from fakes import Far
from pytest_remotegpu.protocol import events, nodes, orders, plain
from stage import FAR, HERE, PASSED, Stage

ARGS = ("-o", "remotegpu_conftest=far")
GPU = nodes.Mark(b"gpu", plain.pack(()), {})


def tree(ids: tuple[str, ...]) -> events.FileTree:
    """Make the event of a file with these tests."""
    path = ids[0].partition("::")[0].encode()
    found = [nodes.Node(0, b"Module", path, path, [], [], [])]
    for id in ids:
        name = id.partition("::")[2].encode()
        place = (path, 3, name)
        found.append(
            nodes.Node(0, b"Function", name, id.encode(), [], [], [], None, place, None, [])
        )
    return events.FileTree(path, 0, nodes.encode(nodes.Tree([], found)))


def left(id: str, node: int, **changes: Any) -> nodes.Left:
    """Say that hooks have left a test."""
    path, _, name = id.encode().partition(b"::")
    fields: dict[str, Any] = {
        "path": path,
        "number": 0,
        "node": node,
        "name": name,
        "nodeid": id.encode(),
        "marks": [0],
        "keywords": [],
        "matches": [],
        "properties": plain.pack([]),
    }
    return nodes.Left(**{**fields, **changes})


ALL = [left(id, node) for ids in (FAR, HERE) for node, id in enumerate(ids, 1)]


def hooked(tests: list[nodes.Left], *markers: bytes) -> events.FileTree:
    """Make the event of what hooks have left."""
    return events.FileTree(b"", 0, nodes.encode(nodes.Hooked([GPU], tests, list(markers))))


def collects(*said: events.Event) -> fakes.Script:
    """Make a script that says this, and runs what it is asked for."""

    def script(far: Far) -> None:
        far.greet()
        far.say(*said, events.StretchEnded())
        message = far.message()
        while isinstance(message, orders.Chosen | orders.Run):
            if isinstance(message, orders.Run):
                far.run(*range(message.first, message.last))
                far.say(events.StretchEnded())
            message = far.next_run()
        far.say(events.Ended())

    return script


TREES = (tree(FAR), tree(HERE))


def test_an_honest_one_is_believed(stage: Stage) -> None:
    """All have run there, also what has no mark, in the order that hooks have made."""
    played = stage.run(collects(*TREES, hooked(ALL[::-1], b"nightly")), args=ARGS)
    assert played.ret == 0, played.text
    assert [played.phases[id] for id in (*FAR, *HERE)] == [PASSED] * 5
    assert played.starts == [*FAR, *HERE][::-1]


REFUSED: dict[str, tuple[list[events.Event], str]] = {
    "nothing": ([*TREES], "it did not say what its hooks have left"),
    "bytes": ([*TREES, events.FileTree(b"", 0, b"\x93\x00")], "undecodable list of tests"),
    "a mark that it lacks": (
        [*TREES, hooked([left(FAR[0], 1, marks=[1])])],
        "refers to a mark that it lacks",
    ),
    "properties that are none": (
        [*TREES, hooked([left(FAR[0], 1, properties=plain.pack(["a"]))])],
        "properties in a list of tests are no pairs",
    ),
    "a property without a name": (
        [*TREES, hooked([left(FAR[0], 1, properties=plain.pack([(1, 2)]))])],
        "properties in a list of tests are no pairs",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_list_that_is_none_ends_the_session(stage: Stage, name: str) -> None:
    said, why = REFUSED[name]
    played = stage.run(collects(*said), args=ARGS)
    assert played.ret == pytest.ExitCode.USAGE_ERROR, played.text
    assert why in played.text
    assert played.starts == played.made == []


WRONG: dict[str, tuple[list[events.Event], str]] = {
    "a test that no tree has": ([*TREES, hooked([left(FAR[0], 9)])], "one that no tree has"),
    "a file as a test": ([*TREES, hooked([left(FAR[0], 0)])], "one that no tree has"),
    "a file that is not here": (
        [*TREES, tree(("test_other.py::test_a",)), hooked([left("test_other.py::test_a", 1)])],
        "the far side has tests in test_other.py, and this side did not come to that file",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_list_that_does_not_fit_is_an_error_of_collection(stage: Stage, name: str) -> None:
    said, why = WRONG[name]
    played = stage.run(collects(*said), args=ARGS)
    assert played.ret == pytest.ExitCode.INTERRUPTED, played.text
    assert why in played.text
    assert played.starts == played.made == []


def test_what_it_drops_is_said(stage: Stage) -> None:
    played = stage.run(collects(*TREES, hooked(ALL[:3])), args=ARGS)
    assert played.ret == 0, played.text
    assert "3 passed, 2 deselected" in played.text
