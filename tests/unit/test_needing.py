"""Which test files need a package, by their source and that of what they import."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_remotegpu.classify.needing import Need, Needing


def look(folder: Path, source: str, **others: str) -> Need | None:
    """Look at a test file; others have ``0`` for a slash and ``1`` for a file of a package."""
    for name, text in {"test_it": source, **others}.items():
        path = folder / f"{name.replace('0', '/').replace('1', '__init__')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Needing("flash_attn", folder, [folder, folder / "src"]).of(folder / "test_it.py")


@pytest.mark.parametrize(
    "source",
    [
        "import flash_attn",
        "import os, flash_attn.layers as layers",
        "from flash_attn.bert_padding import unpad_input",
        "import pytest\npytest.importorskip('flash_attn')",
        "from pytest import importorskip\nfunc = importorskip('flash_attn.ops', '2.8').func",
        "a: object = pytest.importorskip('flash_attn')",
    ],
)
def test_sure(tmp_path: Path, source: str) -> None:
    assert look(tmp_path, source) == Need(tmp_path / "test_it.py", sure=True)


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    import flash_attn\nexcept ImportError:\n    pass",
        "def test():\n    from flash_attn import flash_attn_func",
        "def test():\n    pytest.importorskip('flash_attn')",
        "import importlib\nfa = importlib.import_module('flash_attn')",
        "if 1:\n    import flash_attn",
    ],
)
def test_not_sure(tmp_path: Path, source: str) -> None:
    assert look(tmp_path, source) == Need(tmp_path / "test_it.py", sure=False)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "import flash_attn_interface",
        "from .flash_attn import own",
        "NAME = 'flash_attn'",
        "import (",
        "import flash_attn as (",
        "import missing.module\nfrom . import missing\nfrom .... import far\nimport .\n",
    ],
)
def test_none(tmp_path: Path, source: str) -> None:
    assert look(tmp_path, source) is None


@pytest.mark.parametrize(
    ("source", "file"),
    [
        ("import helper", "helper"),
        ("from helper import *", "helper"),
        ("import os, helper as h", "helper"),
        ("from pkg import layers", "src0pkg0layers"),
        ("from pkg import (\n    other,\n    layers as own,\n)", "src0pkg0layers"),
        ("import pkg.layers.more", "src0pkg0layers"),
        ("import pkg.deep.leaf", "src0pkg0deep01"),
        ("def test():\n    from pkg.layers import x", "src0pkg0layers"),
    ],
)
def test_followed(tmp_path: Path, source: str, file: str) -> None:
    """Through other files of the project, and the packages around them."""
    flash = {file: "from flash_attn import x"}
    others = {"src0pkg01": "", "src0pkg0other": "", "src0pkg0deep0leaf": ""}
    found = look(tmp_path, "import middle", **others, **flash, middle=source)
    assert found is not None
    assert found.file.read_text() == "from flash_attn import x"
    assert not found.sure


def test_relative(tmp_path: Path) -> None:
    files = {"src0pkg0a": "from . import b", "src0pkg0b": "from .c.d import e"}
    found = look(tmp_path, "import pkg.a", **files, src0pkg0c0d="import flash_attn")
    assert found == Need(tmp_path / "src/pkg/c/d.py", sure=False)


def test_a_circle(tmp_path: Path) -> None:
    assert look(tmp_path, "import a", a="import b", b="import a") is None


def test_conftests_of_the_project_only(tmp_path: Path) -> None:
    root = tmp_path / "root"
    below = root / "below"
    below.mkdir(parents=True)
    (tmp_path / "conftest.py").write_text("import flash_attn")
    test = below / "test_it.py"
    test.touch()
    assert Needing("flash_attn", root, [root]).of(test) is None
    (root / "conftest.py").write_text("import flash_attn")
    assert Needing("flash_attn", root, [root]).of(test) == Need(root / "conftest.py", sure=False)
