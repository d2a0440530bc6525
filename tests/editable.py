"""Packages that are installed in editable mode, as pip and uv leave them in site-packages.

Made by hand: no build tool, no network. The interpreter finds them as it finds those of pip.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest

__all__ = ["Around", "Environment", "uses"]


class Environment:
    """A second ``site-packages``, of which this process's children read the ``.pth`` files.

    :param folder: to make it in.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site = folder / "venv" / "site-packages"
        self.site.mkdir(parents=True)
        start = folder / "start"
        start.mkdir()
        (start / "sitecustomize.py").write_text(
            f"import site\nsite.addsitedir({str(self.site)!r})\n", encoding="utf-8"
        )
        monkeypatch.setenv("PYTHONPATH", str(start))

    def install(
        self,
        name: str,
        folder: Path,
        *,
        entry: Path | None = None,
        requires: tuple[str, ...] = (),
        mapping: dict[str, Path] | None = None,
        recorded: bool = True,
    ) -> None:
        """Install a package.

        :param folder: of its sources. :param entry: of the import path, where it is another one.
        :param mapping: where its modules are; then by an import hook, as setuptools does it.
        :param recorded: whether its metadata say that it is editable, which old tools leave out.
        """
        module = name.replace("-", "_")
        if mapping is None:
            lines = f"{entry or folder}\n"
        else:
            places = {each: str(place) for each, place in mapping.items()}
            finder = f"__editable___{module}_finder"
            text = textwrap.dedent(FINDER).format(mapping=places)
            (self.site / f"{finder}.py").write_text(text, encoding="utf-8")
            lines = f"import {finder}; {finder}.install()\n"
        (self.site / f"__editable__.{module}.pth").write_text(lines, encoding="utf-8")
        info = self.site / f"{module}-1.0.dist-info"
        info.mkdir()
        needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}"
        (info / "METADATA").write_text(text, encoding="utf-8")
        if recorded:
            said = {"url": folder.as_uri(), "dir_info": {"editable": True}}
            (info / "direct_url.json").write_text(json.dumps(said), encoding="utf-8")


FINDER = """
    import importlib.util
    import sys

    MAPPING = {mapping!r}

    class _EditableFinder:
        @classmethod
        def find_spec(cls, name, path=None, target=None):
            place = MAPPING.get(name)
            if place is not None:
                return importlib.util.spec_from_file_location(
                    name, f"{{place}}/__init__.py", submodule_search_locations=[place]
                )

    def install():
        sys.meta_path.append(_EditableFinder)
"""


class Around:
    """A folder beside the project, for libraries."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester = pytester
        self.folder = pytester.path.parent / f"{pytester.path.name}-around"
        self.folder.mkdir()
        self.environment = Environment(self.folder, monkeypatch)
        monkeypatch.setenv("XDG_CACHE_HOME", str(self.folder / "cache"))
        pytester.makeini(f"[pytest]\nremotegpu_python = {sys.executable}\n")

    def library(self, name: str, **files: str) -> Path:
        """Write a library with a package, and give its folder."""
        folder = self.folder / name
        package = folder / "src" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"VALUE = {name!r}\n", encoding="utf-8")
        for file, text in files.items():
            (package / f"{file}.py").write_text(text, encoding="utf-8")
        return folder

    def commit(self, folder: Path) -> None:
        """Make a folder a checkout, with all that is in it."""
        for words in (["init", "-q", "."], ["add", "-A"], ["commit", "-qm", "all"]):
            identity = ["-c", "user.name=x", "-c", "user.email=x@example.invalid"]
            self.pytester.run("git", "-C", folder, *identity, *words)


def uses(*names: str, here: bool = True) -> str:
    """Write a test that needs packages; they are imported *here* as well, or there alone."""
    text = ", ".join(names)
    checks = "".join(
        f"    assert {name}.VALUE == {name!r} and '/trees/' in {name}.__file__\n" for name in names
    )
    top = f"import {text}\n" if here else ""
    return f"import pytest\n{top}\n@pytest.mark.gpu\ndef test_one():\n    import {text}\n{checks}"
