"""A hostile worker names what it would like to have: files of this side, classes, modules, code.

None of it is opened, imported or run; files stay in the folder that is theirs.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import msgspec
import pytest

import fakes
from fakes import Far, report
from pytest_remotegpu.protocol import events
from stage import FAR, PASSED, Played, Stage, each

HONEST: list[events.Event] = [
    report(0, "setup"),
    report(0, "call"),
    report(0, "teardown"),
    events.Finished(0),
]


def during_the_first(*said: events.Event) -> fakes.Script:
    """Make a script that says this while its first test runs, and is honest otherwise."""

    def script(far: Far) -> None:
        far.greet()
        far.say(events.Started(0), *said)
        far.say(*HONEST)
        far.run(1, 2)
        far.end()

    return script


# ---------------------------------------------------------------- artifacts

UNSAFE = {
    "above": b"../x",
    "far above": b"../../../../../../../../tmp/remotegpu-was-here",
    "above in the middle": b"a/../../x",
    "above at the end": b"a/..",
    "absolute": b"/tmp/remotegpu-was-here",
    "NUL": b"a\0b",
    "empty": b"",
    "dot": b".",
    "doubled slash": b"a//b",
    "trailing slash": b"a/",
    "too many folders": b"/".join([b"a"] * 30),
    "not UTF-8": b"\xff\xfe",
}


@pytest.mark.timeout(60)
def test_artifacts_whose_names_lead_elsewhere(stage: Stage) -> None:
    scripts = {
        word: during_the_first(events.Artifact(0, name, b"data")) for word, name in UNSAFE.items()
    }
    each(stage.run_lanes(scripts), lambda _name, played: played.caught(said="broke the protocol"))


ODD = {
    "device of Windows": b"con",
    "device with an ending": b"nul.txt",
    "trailing blank": b"aux ",
    "drive": b"C:\\x",
    "backslashes": b"..\\..\\x",
    "stream of Windows": b"a:b",
    "300 bytes": b"x" * 300,
    "300 bytes of three": ("日" * 100).encode(),
    "folders of 300 bytes": b"/".join([b"y" * 300] * 3),
    "surrogate": b"\xed\xa0\x80",
    "control characters": b"\x1b[2J\n",
    "hidden": b".pth",
    "bidirectional": "a\u202eb".encode(),
}


@pytest.mark.timeout(30)
def test_artifact_whose_name_is_odd(stage: Stage) -> None:
    """It is kept, under a name that any file system takes, in the folder of its test."""
    root = stage.path / "kept"
    artifacts = [events.Artifact(0, name, str(at).encode()) for at, name in enumerate(ODD.values())]
    played = stage.run(during_the_first(*artifacts), args=(f"--remote-artifacts={root}",))
    assert played.ret == 0, played.text
    [home] = root.iterdir()
    files = [path for path in home.rglob("*") if path.is_file()]
    assert sorted(int(path.read_text()) for path in files) == list(range(len(ODD)))
    assert all(len(os.fsencode(part)) <= 255 for path in files for part in path.parts)
    assert all(path.startswith("project/kept/") or path == "project/kept" for path in played.made)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "names",
    [(b"a", b"a/b"), (b"a/b", b"a")],
    ids=["folder over a file", "file over a folder"],
)
def test_artifact_that_is_file_and_folder(names: tuple[bytes, bytes], stage: Stage) -> None:
    pieces = [events.Artifact(0, name, b"data") for name in names]
    stage.run(during_the_first(*pieces)).caught(said="broke the protocol")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("where", ["folder of the test", "file", "folder within"])
def test_artifacts_follow_no_link(where: str, stage: Stage) -> None:
    """Links that lie there from another time lead nowhere; and none can be sent."""
    root, outside = stage.path / "kept", stage.path.parent / "outside"
    outside.mkdir()
    (outside / "x").write_text("precious")
    args = (f"--remote-artifacts={root}",)
    assert stage.run(during_the_first(events.Artifact(0, b"sub/x", b"1")), args=args).ret == 0
    [home] = root.iterdir()
    link = {"folder of the test": home, "file": home / "sub" / "x", "folder within": home / "sub"}[
        where
    ]
    target = outside / "x" if where == "file" else outside
    for path in (home / "sub" / "x", home / "sub", home):
        if path.is_relative_to(link):
            path.rmdir() if path.is_dir() else path.unlink()
    link.symlink_to(target)
    played = stage.run(during_the_first(events.Artifact(0, b"sub/x", b"2")), args=args)
    assert played.ret == 0, played.text
    assert (outside / "x").read_text() == "precious"
    assert [path.name for path in outside.iterdir()] == ["x"]
    assert (home / "sub" / "x").read_text() == "2"


def test_artifacts_are_limited(stage: Stage) -> None:
    (stage.path / "pytest.ini").write_text("[pytest]\nremotegpu_max_artifact = 1KiB\n")
    pieces = [events.Artifact(0, b"x", b"y" * 600, last=False) for _ in range(2)]
    stage.run(during_the_first(*pieces)).caught(said="larger than 1024 bytes")


# ---------------------------------------------------------------- classes, modules, code

CATEGORIES = (
    *("os.system", "subprocess.Popen", "builtins.exec", "builtins.SystemExit", "canary.Thing"),
    *("canary", "", ".", "...", "x." + "y" * 10_000, "a\nb.c\x1b[2J", "nul\0.nul\0"),
    *("UserWarning", "builtins.UserWarning", "__main__.__builtins__"),
)


@pytest.mark.timeout(30)
def test_warning_of_any_class_is_made_up(stage: Stage) -> None:
    """Its class looks like the one there; none is of this side, but for Python's own warnings."""
    stage.path.joinpath("canary.py").write_text("open('it-was-imported', 'w')\nThing = exec\n")
    said = [
        events.Warned(0, "runtest", category, b"text", b"x.py", n, b"", None)
        for n, category in enumerate(CATEGORIES)
    ]
    played = stage.run(during_the_first(*said), args=("-W", "always"))
    assert played.ret == 0, played.text
    assert "canary" not in sys.modules
    assert played.made == []
    assert len(played.warned) == len(CATEGORIES)
    for message in played.warned:
        assert issubclass(message.category, Warning)
        if message.category is not UserWarning:
            assert message.category.__mro__[1] is Warning
            assert "__init__" not in vars(message.category)


@pytest.mark.timeout(20)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("place", [0, -1], ids=["of a test", "of none"])
def test_warning_makes_nobody_read_a_file_here(place: int, stage: Stage) -> None:
    """The file that it names may be a pipe, which would never end, or one full of secrets."""
    pipe = stage.path / "pipe.py"
    os.mkfifo(pipe)
    secret = stage.path / "secret.txt"
    secret.write_text("hunter2\n")
    said = [
        events.Warned(place, "runtest", "x.Y", b"text", str(path).encode(), 1, None, None)
        for path in (pipe, secret)
    ]
    played = stage.run(during_the_first(*said))
    assert played.ret == 0, played.text
    assert "hunter2" not in played.text


class Canary:
    """An object whose unpickling leaves a file behind."""

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return open, ("it-was-unpickled", "w")


def value_for(kind: Any, text: bytes) -> Any:
    """Make a value of a field's type that holds a pickle wherever it can."""
    if isinstance(kind, msgspec.inspect.UnionType):
        return value_for(kind.types[0], text)
    match kind:
        case msgspec.inspect.BytesType():
            return text
        case msgspec.inspect.StrType():
            return text.decode("latin-1")
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            return 0
        case msgspec.inspect.BoolType():
            return False
        case msgspec.inspect.ListType():
            return [value_for(kind.item_type, text)]
        case msgspec.inspect.TupleType():
            return [value_for(part, text) for part in kind.item_types]
        case _:
            return {"$report_type": "TestReport", "x": text, "longrepr": text}


KINDS = [type_.cls for type_ in msgspec.inspect.type_info(events.Event).types]  # type: ignore[attr-defined]


ENDINGS = {events.CollectFailed, events.StretchEnded, events.Exited}
"""Kinds that concern the whole session."""


def pickles(kind: Any) -> fakes.Script:
    """Make a script that sends this event with pickles in it, of the oldest form and the newest."""
    fields = msgspec.inspect.type_info(kind).fields  # type: ignore[attr-defined]

    def script(far: Far) -> None:
        far.greet()
        far.say(events.Started(0))
        for protocol in (0, pickle.HIGHEST_PROTOCOL):
            text = pickle.dumps(Canary(), protocol)
            values = [value_for(field.type, text) for field in fields]
            far.encoded(msgspec.msgpack.encode([[kind.__struct_config__.tag, *values]]), 1)
        far.say(*HONEST)
        far.run(1, 2)
        far.end()

    return script


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        ([kind for kind in KINDS if kind not in ENDINGS], 1),
        ([events.CollectFailed, events.StretchEnded], 2),
        ([events.Exited], 1),
    ],
    ids=["most", "interruptions", "exit"],
)
def test_nothing_is_unpickled(kinds: list[Any], status: int, stage: Stage) -> None:
    """Each field of each event holds a pickle that would leave a file behind; none is opened."""

    def check(_name: str, played: Played) -> None:
        assert played.made == [], played.made
        phases = [played.phases.get(id) for id in FAR]
        assert "failed" in played.verdicts() or phases == [PASSED] * 3 or status == 2, phases

    scripts = {kind.__name__: pickles(kind) for kind in kinds}
    each(stage.run_lanes(scripts, status=status), check)
