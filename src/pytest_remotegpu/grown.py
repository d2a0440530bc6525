"""Nodes of tests that were collected on the far side, made of the data that it has sent.

Pytest and its plugins see the same files, classes and tests as if they had been collected here;
there is no Python object behind any. Knows no worker and no wire beyond the data.
"""

from __future__ import annotations

import functools
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
from msgspec import Struct

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol import nodes
from pytest_remotegpu.protocol.plain import from_text

__all__ = [
    "Absent",
    "FarClass",
    "FarError",
    "FarFile",
    "FarItem",
    "LackError",
    "LackingError",
    "grow",
    "items_of",
    "made_of",
    "report_of",
]

WAY_OUT: Final = (
    "was collected on the far side, so there is no Python object of it here; hooks that need one "
    "can work with remotegpu_collect = here"
)
EVALUATED: Final = "filterwarnings"
"""A mark whose arguments pytest would act upon while it shows a test that ran elsewhere."""


class LackingError(Exception):
    """A Python object was asked for that only the far side has."""

    def where(self, root: Path) -> str:
        """Say who has asked for it.

        :param root: the folder that paths are seen from.
        """
        frames = [f for f in traceback.extract_tb(self.__traceback__) if f.filename != __file__]
        if not frames:
            return ""
        last, path = frames[-1], Path(frames[-1].filename)
        shown = path.relative_to(root) if path.is_relative_to(root) else path
        return f"{shown}:{last.lineno}: {last.name} asks for it"


class LackError(LackingError, AttributeError):
    """It was an attribute of a node, and who asks may do without it."""


class _FarModule(types.ModuleType):
    """Has the name of a module of the far side; whoever asks for more would be told a lie."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise LackingError(f"no {name!r}: module {self.__name__!r} {WAY_OUT}")


class _Objectless:
    """Mixed into nodes: what a Python object would be needed for is not there, and says why."""

    def _lack(self, name: str) -> NoReturn:
        raise LackError(f"no {name!r}: {getattr(self, 'nodeid', '')} {WAY_OUT}")

    @property
    def obj(self) -> Any:
        """Not there."""
        self._lack("obj")

    @property
    def function(self) -> Any:
        """Not there."""
        self._lack("function")

    @property
    def module(self) -> Any:
        """One that has its name only, where it has one."""
        file = self.getparent(FarFile)  # type: ignore[attr-defined]
        if file is None or file.named is None:
            self._lack("module")
        return file.named

    @property
    def instance(self) -> Any:
        """Not there."""
        self._lack("instance")


class _Told:
    """Mixed into collectors: what they hold has been told, or why they hold nothing.

    :ivar kind: the name of the class that it is of there. :ivar children: what it holds.
    :ivar outcome: why it holds nothing; ``None`` where it was collected.
    """

    kind = "Module"
    outcome: nodes.Outcome | None = None
    children: list[pytest.Item | pytest.Collector]

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        """Give what was told."""
        return list(self.children)

    def __repr__(self) -> str:
        return f"<{self.kind} {getattr(self, 'name', '')}>"


class FarFile(_Told, _Objectless, pytest.File):
    """One collector of a file; its tree comes when it is collected.

    :ivar number: its ordinal among those of the file. :ivar fetch: brings its tree.
    :ivar grown: whether it has come. :ivar given: whether what it holds has been given away.
    :ivar folder: the id of the folder whose outcome is this file's; ``None`` for none.
    :ivar named: stands for the module that it is there, where it is one.
    """

    number = 0
    fetch: Callable[[FarFile], None]
    grown = False
    given = False
    folder: str | None = None
    named: types.ModuleType | None = None

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        """Give what is told now; other nodes each time, as any file does."""
        if self.given or not self.grown:
            self.fetch(self)
        self.given = True
        return super().collect()


class FarClass(_Told, _Objectless, pytest.Class):
    """A class of tests.

    :ivar stand_in: an empty class of its name.
    """

    kind = "Class"
    stand_in: type


class _Scope:
    """The scope of a parameter, which pytest compares with its own."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return getattr(other, "value", None) == self.value

    def __hash__(self) -> int:
        return hash(self.value)


class _Parameters(Struct, dict=True):
    """What stands in the place of a call specification: the parameters as data.

    Pytest orders tests by the last field.
    """

    id: str
    params: Mapping[str, Any]
    indices: Mapping[str, int]
    marks: list[pytest.Mark]
    _arg2scope: Mapping[str, _Scope]


class FarItem(_Objectless, pytest.Item):
    """A test.

    :ivar kind: the name of the class that it is of there. :ivar told_name: its name there, which
        hooks here may change. :ivar told_id: likewise, as pytest-xdist does for a group of tests.
        :ivar told: how many marks came with it;
        hooks here may have added others. :ivar cls: an empty class of the name of its own, by which
        pytest tells apart the tests of one and another; ``None`` where it is in none.
    :ivar near: the same test as it was collected here, where others of its file run here.
    """

    kind = "Function"
    cls: type | None = None
    told = 0
    told_name = ""
    told_id = ""
    place: tuple[str, int | None, str] = ("", None, "")
    near: pytest.Item | None = None

    def listchain(self) -> list[Any]:
        """Give what it is in: those nodes whose fixtures tests here have, for pytest to keep."""
        chain: list[Any] = super().listchain()
        return chain if self.near is None else [*self.near.listchain()[:-1], self]

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Give its place, as it was told."""
        path, lineno, domain = self.place
        if domain.endswith(self.told_name):
            domain = domain[: len(domain) - len(self.told_name)] + self.name
        return self.config.rootpath / path, lineno, domain

    def runtest(self) -> None:
        """Run nowhere but there.

        :raises RuntimeError: always.
        """
        raise RuntimeError(f"{self.nodeid} {WAY_OUT}")

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


class FarError:
    """The error of a collection there, as pytest shows one of its own.

    :param crash: path, line and message, where the error has any.
    :ivar reprcrash: the same; the short summary is made of it.
    """

    def __init__(self, text: str, crash: tuple[str, int, str] | None = None) -> None:
        self._text = text
        self.crash = crash
        if crash is not None:
            self.reprcrash = _Crash(*crash)

    @classmethod
    def of(cls, outcome: nodes.Outcome) -> FarError:
        """Make it of what was told."""
        crash = outcome.crash
        place = crash and (from_text(crash[0]), crash[1], from_text(crash[2]))
        return cls(from_text(outcome.text), place)

    def __str__(self) -> str:
        return self._text

    def toterminal(self, out: Any) -> None:
        """Write it."""
        out.line(self._text)


class _Crash(Struct, frozen=True):
    path: str
    lineno: int
    message: str


def report_of(collector: FarFile | FarClass) -> pytest.CollectReport | None:
    """Make the report of a collector that holds nothing; ``None`` for one that does."""
    outcome = collector.outcome
    return None if outcome is None else made_of(collector.nodeid, outcome)


def made_of(nodeid: str, outcome: nodes.Outcome) -> pytest.CollectReport:
    """Make the report of a node that was not collected there."""
    longrepr: Any = FarError.of(outcome)
    if outcome.outcome == "skipped" and outcome.crash is not None:
        path, lineno, reason = outcome.crash
        longrepr = (from_text(path), lineno, from_text(reason))
    return pytest.CollectReport(nodeid, outcome.outcome, longrepr, [])


def grow(file: FarFile, tree: nodes.Tree) -> list[Any]:
    """Give a file the classes and tests of its tree.

    :return: the nodes by their places.
    :raises ProtocolError: where pytest can't have such nodes.
    """
    marks = [_mark(mark) for mark in tree.marks]
    made: list[Any] = [file]
    if file.grown:
        file.children = []
    else:
        _equip(file, tree.nodes[0], marks)
        if tree.nodes[0].module:
            file.named = _FarModule(from_text(tree.nodes[0].module))
    for node in tree.nodes[1:]:
        parent = made[node.parent]
        _check_id(from_text(node.nodeid), file)
        child = _make(parent, node, marks)
        made.append(child)
        parent.children.append(child)
    file.grown = True
    return made


def _mark(mark: nodes.Mark) -> pytest.MarkDecorator:
    name = from_text(mark.name)
    args = () if name == EVALUATED else mark.args
    if name.startswith("_"):
        raise ProtocolError(f"the far side has a mark {name!r}, and here it can't be")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the far side has told of unknown marks
        try:
            generated: pytest.MarkDecorator = getattr(pytest.mark, name)
        except (AttributeError, IndexError, pytest.fail.Exception) as error:
            raise ProtocolError(
                f"the far side has a mark {name!r}, and here it can't be: {error}"
            ) from None
    return generated.with_args(*args, **mark.kwargs)


def _check_id(nodeid: str, file: FarFile) -> None:
    """See that an id is one of this file's, so that nothing is said of tests of others.

    :raises ProtocolError: where not.
    """
    if "::()" in nodeid or not nodeid.startswith(f"{file.nodeid.partition('::')[0]}::"):
        raise ProtocolError(f"a node of {file.nodeid} has the id {nodeid!r} on the far side")


def _make(parent: Any, node: nodes.Node, marks: list[pytest.MarkDecorator]) -> Any:
    name, nodeid = from_text(node.name), from_text(node.nodeid)
    plain = nodeid == f"{parent.nodeid}::{name}" and "[" not in name
    own = {} if plain else {"nodeid": nodeid}  # pytest knows parameters by the text of an id
    kind: Any = FarClass if node.location is None else FarItem
    made = kind.from_parent(parent, name=name, **own)
    _equip(made, node, marks)
    if node.location is None:
        made.stand_in = _stand_in(name, node)
    else:
        made.cls = getattr(parent, "stand_in", None)
        _equip_item(made, node, node.location, marks)
    return made


@functools.lru_cache(100)
def _called(base: Any, kind: str) -> type:
    """Give a class that is the same but for its name, which reports of plugins show."""
    return type(kind, (base,), {}) if kind.isidentifier() else base


def _stand_in(name: str, node: nodes.Node) -> type:
    """Make an empty class of the names that a class has there."""
    shown = from_text(node.qualname) or name
    named = {"__module__": from_text(node.module), "__qualname__": shown}
    return type("".join(name.split("\0")), (), named)


def _equip(made: Any, node: nodes.Node, marks: list[pytest.MarkDecorator]) -> None:
    """Give a node what all nodes have."""
    made.kind = from_text(node.kind)
    base: Any = type(made)
    made.__class__ = _called(base, made.kind)
    made.outcome = node.outcome
    made.children = []
    for place in node.marks:
        made.own_markers.append(marks[place].mark)
        made.keywords[marks[place].name] = marks[place]
    for name in node.keywords:
        made.keywords[from_text(name)] = True
    made.extra_keyword_matches.update(map(from_text, node.matches))


def _equip_item(
    item: Any,
    node: nodes.Node,
    location: tuple[bytes, int | None, bytes],
    marks: list[pytest.MarkDecorator],
) -> None:
    item.place = (from_text(location[0]), location[1], from_text(location[2]))
    item.told = len(item.own_markers)
    item.told_name, item.told_id = item.name, item.nodeid
    if node.originalname is not None:
        item.originalname = from_text(node.originalname)
    if node.fixturenames is not None:
        item.fixturenames = list(map(from_text, node.fixturenames))
    given = node.parameters
    if given is not None:
        item.callspec = _Parameters(
            from_text(given.id),
            given.values,
            given.indices,
            [marks[place].mark for place in given.marks],
            {name: _Scope(str(scope)) for name, scope in given.scopes.items()},
        )


def items_of(node: Any) -> Iterator[FarItem]:
    """Give the tests in a file or class."""
    for child in node.children:
        if isinstance(child, FarItem):
            yield child
        else:
            yield from items_of(child)


class Absent(pytest.Item):
    """Stands for a test that is to run here, and whose file can't be collected here.

    :ivar why: the report of that collection, or a text. :ivar place: where the test is.
    """

    why: Any = ""
    place: tuple[str, int | None, str] = ("", None, "")

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Give its place, as it was told."""
        path, lineno, domain = self.place
        return self.config.rootpath / path, lineno, domain

    def runtest(self) -> None:
        """Be skipped as its file is, or fail.

        :raises AssertionError: where the file can't be collected here.
        """
        if isinstance(self.why, pytest.CollectReport) and self.why.skipped:
            pytest.skip(str(self.why.longrepr[2]) if isinstance(self.why.longrepr, tuple) else "")
        raise AssertionError

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Say why."""
        if not isinstance(excinfo.value, AssertionError):
            return super().repr_failure(excinfo, style)
        text = self.why if isinstance(self.why, str) else str(self.why.longrepr)
        return (
            f"this test has no gpu mark, so it runs here; its file was collected on the far side, "
            f"and here it can't be:\n{text}\nmark it, or ship all tests with --remote-all"
        )
