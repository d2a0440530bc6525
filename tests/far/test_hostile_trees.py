"""A hostile worker lies about what it has collected: nothing of it runs here, or goes missing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fakes import Far, Script
from pytest_remotegpu.protocol import events, nodes, orders, plain
from stage import FAR, HERE, Stage

ARGS = ("-o", "remotegpu_collect=far")
GPU = nodes.Mark(b"gpu", plain.pack(()), {})


def test(name: str, *marks: int, **changes: Any) -> nodes.Node:
    """Make a node as an honest worker tells of it, with some of it changed."""
    own = {
        "kind": b"Function",
        "name": name.encode(),
        "nodeid": f"test_far.py::{name}".encode(),
        "location": (b"test_far.py", 3, name.encode()),
        "fixturenames": [],
        **changes,
    }
    return nodes.Node(parent=0, marks=list(marks), keywords=[], matches=[], **own)


test.__test__ = False  # type: ignore[attr-defined]
FILE = nodes.Node(0, b"Module", b"test_far.py", b"test_far.py", [], [], [])
HONEST = [FILE, *(test(name, 0) for name in ("test_a", "test_b", "test_c"))]


def told(found: list[nodes.Node], *marks: nodes.Mark, number: int = 0) -> events.FileTree:
    """Make the event of a tree."""
    data = nodes.encode(nodes.Tree([GPU, *marks], found))
    return events.FileTree(b"test_far.py", number, data)


def collects(*said: events.Event) -> Script:
    """Make a script that says this of its files, and runs what it is asked for."""

    def script(far: Far) -> None:
        far.greet()
        far.say(*said, events.StretchEnded())
        message = far.message()
        if isinstance(message, orders.Chosen):
            run = far.message()
            far.run(*range(run.first, run.last))
            far.say(events.StretchEnded())
        far.say(events.Ended())

    return script


def test_an_honest_one_is_believed(stage: Stage) -> None:
    played = stage.run(collects(told(HONEST)), args=ARGS)
    assert played.ret == 0, played.text
    assert played.verdicts((*FAR, *HERE)) == ["passed"] * 5
    assert played.workers == 1


def test_a_tree_in_pieces(stage: Stage) -> None:
    whole = told(HONEST).data
    pieces = [
        events.FileTree(b"test_far.py", 0, whole[:10], last=False),
        events.FileTree(b"test_far.py", 0, whole[10:]),
    ]
    assert stage.run(collects(*pieces), args=ARGS).ret == 0


def many() -> list[events.Event]:
    """Make the trees of more collectors than a file has."""
    return [told(HONEST, number=number) for number in range(1, 40)]


LIES: dict[str, tuple[list[events.Event], str]] = {
    "bytes": ([events.FileTree(b"test_far.py", 0, b"\x93\x00")], "undecodable tree of a file"),
    "no node": ([told([])], "undecodable tree of a file"),
    "no tree": ([], "did not collect test_far.py"),
    "another file's": ([events.FileTree(b"test_x.py", 0, told(HONEST).data)], "did not collect"),
    "half of one": (
        [events.FileTree(b"test_far.py", 0, told(HONEST).data, last=False)],
        "did not collect test_far.py",
    ),
    "more files": (many(), "more files than it was asked for"),
    "a path that is no text": ([events.FileTree(b"\xff", 0, b"")], "not UTF-8"),
    "a mark without a name": (
        [told([FILE, test("test_a", 1)], nodes.Mark(b"", plain.pack(()), {}))],
        "has a mark ''",
    ),
    "a private mark": (
        [told([FILE, test("test_a", 1)], nodes.Mark(b"__class__", plain.pack(()), {}))],
        "has a mark '__class__'",
    ),
    "an id that pytest can't have": (
        [told([FILE, test("test_a", 0, nodeid=b"test_far.py::()::x")])],
        "has the id 'test_far.py::()::x'",
    ),
    "an id of another file's": (
        [told([FILE, test("test_a", 0, nodeid=b"test_here.py::test_one")])],
        "has the id 'test_here.py::test_one'",
    ),
    "an id of another file's, in part": (
        [told([FILE, test("test_a", 0, nodeid=b"test_far.pyx::test_one")])],
        "has the id 'test_far.pyx::test_one'",
    ),
    "an error": ([told([replace(FILE, outcome=nodes.Outcome("failed", b"hm!"))])], "hm!"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_an_error_of_collection(stage: Stage, name: str) -> None:
    said, why = LIES[name]
    played = stage.run(collects(*said), args=ARGS)
    assert played.ret == pytest.ExitCode.INTERRUPTED, played.text
    assert why in played.text
    assert played.starts == []
    assert played.made == []


def test_a_stream_that_ends_is_an_error_of_collection(stage: Stage) -> None:
    played = stage.run(lambda far: far.greet(), args=ARGS)
    assert played.ret == pytest.ExitCode.INTERRUPTED, played.text
    assert "did not collect test_far.py: " in played.text


def test_a_far_side_that_does_not_fit_is_refused(stage: Stage) -> None:
    def script(far: Far) -> None:
        far.greet(protocol=1)
        far.say(told(HONEST), events.StretchEnded(), events.Ended())

    played = stage.run(script, args=ARGS)
    assert played.ret == pytest.ExitCode.USAGE_ERROR
    assert "can't serve this session" in played.text


EVIL = "open('owned', 'w')"


@pytest.mark.parametrize(
    "mark",
    [
        nodes.Mark(b"filterwarnings", plain.pack(("ignore::canary.Thing",)), {}),
        nodes.Mark(b"skipif", plain.pack((EVIL,)), {"reason": "x"}),
        nodes.Mark(b"xfail", plain.pack((EVIL,)), {"reason": "x"}),
        nodes.Mark(b"usefixtures", plain.pack(("nothing_like_this",)), {}),
        nodes.Mark(b"parametrize", plain.pack(("a", [1])), {}),
    ],
    ids=lambda mark: mark.name.decode(),
)
def test_marks_make_nothing_run_here(stage: Stage, mark: nodes.Mark) -> None:
    """Neither on a test that runs there nor on one that is to run here and is not there."""
    (stage.path / "canary.py").write_text("open('owned', 'w').close()\nclass Thing(Warning): 1\n")
    before = [path.name for path in stage.path.iterdir()]
    found = [*HONEST[:1], *(test(name, 0, 1) for name in ("test_a", "test_b", "test_c"))]
    played = stage.run(collects(told([*found, test("test_none", 1)], mark)), args=ARGS)
    assert played.verdicts() == ["passed"] * 3, played.text
    assert played.verdict("test_far.py::test_none") == "failed"
    assert "it is not among the tests that its file has here" in played.text
    assert "owned" not in [path.name for path in stage.path.iterdir()], before
