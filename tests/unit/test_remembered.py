"""Trees that are kept between sessions: what they need, what makes them void, how many."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_remotegpu import remembered, snapshot
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import nodes
from pytest_remotegpu.remembered import Project, Remembered

ONE = Shape(1)
RULES = snapshot.Rules((), (), 2**30)
TREE = nodes.encode(
    nodes.Tree([], [nodes.Node(0, b"Module", b"test_a.py", b"test_a.py", [], [], [])])
)
FAILED = nodes.encode(
    nodes.Tree(
        [],
        [
            nodes.Node(
                0, b"Module", b"test_a.py", b"test_a.py", [], [], [], nodes.Outcome("failed", b"x")
            )
        ],
    )
)


class Place:
    """A project, and a folder for what is kept of it."""

    def __init__(self, base: Path) -> None:
        self.root, self.folder = base / "project", base / "kept"
        self.root.mkdir()
        self.folder.mkdir()

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.root / f"{name}.py").write_text(text)

    @property
    def project(self) -> Project:
        return Project(snapshot.take(self.root, RULES), ())

    def keep(self, *notes: tuple[str, list[str]], data: bytes = TREE) -> None:
        kept = Remembered(self.root, self.folder, "asked")
        for path, sources in notes:
            kept.note(path, 0, ONE, data, sources)
        kept.keep(self.project)

    def finds(self, path: str, shape: Shape = ONE, asked: str = "asked") -> bool:
        return bool(Remembered(self.root, self.folder, asked).find(path, shape, self.project)[0])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Have a project of two files of tests, of which one may use the other, and a helper."""
    made = Place(tmp_path)
    made.write(test_a="import helper", test_b="import test_a", test_c="", helper="")
    read = ["helper.py", "test_a.py"]
    made.keep(
        ("test_a.py", read), ("test_b.py", [*read, "test_b.py"]), ("test_c.py", ["test_c.py"])
    )
    assert all(made.finds(f"test_{name}.py") for name in "abc")
    return made


def test_a_file_needs_what_it_may_name(place: Place) -> None:
    place.write(test_a="import helper  # changed")
    assert [place.finds(f"test_{name}.py") for name in "abc"] == [False, False, True]
    place.write(test_a="import helper", test_c="changed")
    assert [place.finds(f"test_{name}.py") for name in "abc"] == [True, True, False]
    place.write(test_c="", helper="changed")
    assert [place.finds(f"test_{name}.py") for name in "abc"] == [False, False, True]


@pytest.mark.parametrize("what", ["new", "gone", "mode", "data"])
def test_any_file_by_name_and_all_others_by_content(place: Place, what: str) -> None:
    if what == "new":
        place.write(more="")
    elif what == "gone":
        (place.root / "test_b.py").unlink()
    elif what == "mode":
        (place.root / "helper.py").chmod(0o755)
    else:
        (place.root / "data.bin").write_bytes(b"\0")
    assert not place.finds("test_a.py")


def test_it_holds_for_the_same_question_only(place: Place) -> None:
    assert not place.finds("test_a.py", Shape(2))
    assert not place.finds("test_a.py", asked="else")
    assert not place.finds("test_d.py")


@pytest.mark.parametrize("source", ["../../dev/zero", "gone.py", "/etc/passwd"])
def test_what_was_made_of_more_than_was_sent_is_not_kept(place: Place, source: str) -> None:
    place.write(test_d="")
    place.keep(("test_d.py", ["test_d.py", source]))
    assert not place.finds("test_d.py")


def test_what_has_failed_is_not_kept(place: Place) -> None:
    place.write(test_d="")
    place.keep(("test_d.py", ["test_d.py"]), data=FAILED)
    assert not place.finds("test_d.py")


def test_it_stays_within_bounds(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was collected for longest goes first."""
    kept = sorted(place.folder.iterdir(), key=lambda path: path.stat().st_size)
    monkeypatch.setattr(remembered, "MOST", sum(path.stat().st_size for path in kept[1:]))
    for age, path in enumerate(kept):
        os.utime(path, (1000 + age, 1000 + age))
    place.keep()
    assert set(place.folder.iterdir()) == set(kept[1:])


def test_other_things_in_its_folder_do_no_harm(place: Place) -> None:
    (place.folder / "folder").mkdir()
    for path in place.folder.iterdir():
        if path.is_file():
            path.write_bytes(b"\x96" + b"\xc1" * 100)
    assert not place.finds("test_a.py")
    place.keep(("test_a.py", ["test_a.py", "helper.py"]))
    assert place.finds("test_a.py")
