"""What is installed, read once: the same as importlib finds, and read anew where it has changed."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path

import pytest

from pytest_remotegpu.worker import installed

Install = Callable[[str, str], Path]


@pytest.fixture(autouse=True)
def _nothing_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin as a new process does."""
    monkeypatch.setattr(installed, "_FOLDERS", {})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder in which packages are found, before all others."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture
def install(site: Path) -> Install:
    """Install a package that has one plugin."""

    def make(name: str, version: str) -> Path:
        info = site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[pytest11]\n{name} = {name}_plugin\n")
        return info

    return make


def seen() -> list[tuple[str, str, list[str]]]:
    """Look at what is installed, as pytest does."""
    return [
        (found.name, found.version, [f"{point.name} = {point.value}" for point in points])
        for found in importlib.metadata.distributions()
        if (points := found.entry_points) is not None
    ]


def versions(name: str) -> list[str]:
    with installed.kept():
        return [version for found, version, _points in seen() if found == name]


def test_the_same_as_importlib_finds(install: Install) -> None:
    install("some_one", "1.5")
    plainly = seen()
    assert ("some_one", "1.5", ["some_one = some_one_plugin"]) in plainly
    with installed.kept():
        for _ in range(2):
            assert seen() == plainly


def test_files_of_a_package_are_found(install: Install, site: Path) -> None:
    info = install("some_one", "1")
    (info / "RECORD").write_text("some_one_plugin.py,,\n")
    (site / "some_one_plugin.py").touch()
    with installed.kept():
        found = next(d for d in importlib.metadata.distributions() if d.name == "some_one")
        (file,) = found.files or []
        assert Path(str(file.locate())) == site / "some_one_plugin.py"
        assert found.read_text("absent.txt") is None


def test_texts_are_read_once(install: Install) -> None:
    info = install("some_one", "1")
    assert versions("some_one") == ["1"]
    (info / "METADATA").unlink()  # the folder of the package changes, the one that it lies in not
    assert versions("some_one") == ["1"]


def test_what_texts_say_is_made_out_once(install: Install) -> None:
    """Sessions look for the files of plugins, and for entry points of every package."""
    info = install("some_one", "1")
    (info / "RECORD").write_text("some_one_plugin.py,,\n")
    (info.parent / "some_one_plugin.py").touch()
    with installed.kept():
        first, second = (
            next(d for d in importlib.metadata.distributions() if d.name == "some_one")
            for _ in range(2)
        )
        assert first.files is not None
        assert first.files is second.files
        assert first.entry_points is second.entry_points


def test_a_folder_that_has_changed_is_read_anew(install: Install, site: Path) -> None:
    assert versions("some_one") == []
    install("some_one", "1")
    _touch(site)
    assert versions("some_one") == ["1"]
    (site / "some_one-1.dist-info").rename(site / "some_one-2.dist-info")
    (site / "some_one-2.dist-info" / "METADATA").write_text("Name: some_one\nVersion: 2\n")
    _touch(site)
    assert versions("some_one") == ["2"]


def _touch(folder: Path) -> None:
    """Let a folder have changed a second later than it has: clocks of file systems are coarse."""
    changed = folder.stat().st_mtime_ns + 10**9
    os.utime(folder, ns=(changed, changed))


def test_entries_of_the_path_that_are_no_folders(
    install: Install, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be gone; an empty one is the current folder."""
    install("some_one", "1")
    monkeypatch.chdir(site)
    monkeypatch.setattr(sys, "path", [str(site / "gone"), "", *sys.path[1:]])
    assert versions("some_one") == ["1"]


def test_whoever_asks_for_something_of_its_own_is_answered_by_importlib(
    install: Install, site: Path
) -> None:
    info = install("some_one", "1")
    with installed.kept():
        seen()
        (info / "METADATA").write_text("Name: some_one\nVersion: 2\n")
        (found,) = importlib.metadata.distributions(name="some_one", path=[str(site)])
        assert found.version == "2"
        assert importlib.metadata.version("some_one") == "2"


class Finder(DistributionFinder):
    """Finds one distribution, and no module."""

    def find_distributions(
        self,
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008 -- as there
    ) -> Iterator[Distribution]:
        yield from [Odd()] if context.name in (None, "odd-one") else []

    def find_spec(self, *_args: object) -> None:
        return None


class Odd(Distribution):
    """Lies in no folder."""

    def read_text(self, filename: str) -> str | None:
        return "Name: odd-one\nVersion: 3\n" if filename == "METADATA" else None

    def locate_file(self, path: object) -> Path:
        return Path(str(path))


def test_finders_of_others_are_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert versions("odd-one") == []
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert versions("odd-one") == ["3"]
    monkeypatch.undo()
    assert versions("odd-one") == []


def _breaks(while_kept: list[object]) -> None:
    with installed.kept():
        while_kept.append(importlib.metadata.distributions)
        raise KeyError


def test_it_is_for_a_while_only() -> None:
    original = importlib.metadata.distributions
    while_kept: list[object] = []
    with pytest.raises(KeyError):
        _breaks(while_kept)
    assert while_kept != [original]
    assert importlib.metadata.distributions is original


def test_files_to_keep_watch_on(install: Install) -> None:
    assert installed.files() == []
    info = install("some_one", "1")
    assert versions("some_one") == ["1"]
    assert str(info / "entry_points.txt") in installed.files()
    assert all(Path(file).parent.is_dir() for file in installed.files())
