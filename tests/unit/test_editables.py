"""What is installed in editable mode, and which of it a project needs: metadata in, folders out."""

from __future__ import annotations

import json
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_remotegpu import editables
from pytest_remotegpu.editables import Install
from pytest_remotegpu.further import SUFFIXES, sendable

NOTHING: dict[str, list[str]] = {}


def distribution(site: Path, name: str, said: object, *requires: str) -> Distribution:
    info = site / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{needs}")
    if said is not None:
        text = said if isinstance(said, str) else json.dumps(said)
        (info / "direct_url.json").write_text(text, encoding="utf-8")
    return PathDistribution(info)


def editable(folder: Path) -> dict[str, object]:
    return {"url": folder.as_uri(), "dir_info": {"editable": True}}


def test_what_is_editable(tmp_path: Path) -> None:
    folder = tmp_path / "a folder with blanks and ü"
    folder.mkdir()
    found = editables.find(
        [
            distribution(tmp_path, "My_Lib", editable(folder), "Other.Name>=1", "not a ; name ("),
            distribution(tmp_path, "gone", editable(tmp_path / "gone")),
            distribution(tmp_path, "copied", {"url": folder.as_uri(), "dir_info": {}}),
            distribution(tmp_path, "fetched", editable(Path("/")) | {"url": "https://x/y"}),
            distribution(tmp_path, "usual", None),
        ],
        [],
    )
    assert found == [Install("my-lib", folder, ("other-name",))]


@given(
    st.one_of(
        st.text(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ).map(json.dumps),
        st.text().map(lambda url: json.dumps({"url": url, "dir_info": {"editable": True}})),
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_odd_metadata(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Metadata of others may hold anything."""
    site = tmp_path_factory.mktemp("site")
    clean = text.encode("utf-8", "replace").decode("utf-8")
    for install in editables.find([distribution(site, "odd", clean)], []):
        assert install.folder.is_dir()


def test_files_of_old_tools(tmp_path: Path) -> None:
    """A line of a ``.pth`` file that is an entry of the import path; code and others are not."""
    site, lib, other = tmp_path / "site-packages", tmp_path / "lib", tmp_path / "other"
    for folder in (site, lib, other):
        folder.mkdir()
    lines = ["import os; os.getcwd()", "# a comment", "", "../lib", str(other), str(site), "none"]
    (site / "easy-install.pth").write_text("\n".join(lines))
    (site / "bad.pth").write_bytes(b"\xff\xfe\xff")
    path = ["", str(site), str(lib)]
    assert editables.find([], path) == [Install("lib", lib)]
    known = [distribution(site, "lib", editable(lib))]
    assert [each.folder for each in editables.find(known, path)] == [lib]


def test_what_is_needed(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    names = ["imported", "below", "named", "through", "idle", "pytest-remotegpu"]
    installs = [Install(name, tmp_path / name) for name in names]
    installs.append(Install("own", root / "packages" / "own", ("named",)))
    requires = {"named": ["usual", "named"], "usual": ["through ; extra == 'x'", "a bad ("]}
    modules = [
        str(tmp_path / "imported" / "src" / "imported.py"),
        str(tmp_path / "below" / ".venv" / "lib" / "site-packages" / "numpy" / "__init__.py"),
        str(tmp_path / "pytest-remotegpu" / "src" / "x.py"),
        str(root / "test_x.py"),
    ]
    found = editables.needed(installs, root, modules, requires.get)
    assert [each.name for each in found] == ["imported", "named", "through"]


def test_a_project_inside_of_a_package(tmp_path: Path) -> None:
    """Its own files are no sign that it needs the package around it."""
    root = tmp_path / "examples"
    root.mkdir()
    around = Install("around", tmp_path)
    assert editables.needed([around], root, [str(root / "test_x.py")], NOTHING.get) == []
    assert editables.needed([around], root, [str(tmp_path / "src" / "a.py")], NOTHING.get) == [
        around
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("uv.lock", '[[package]]\nname = "x"\nsource = { KIND = "../lib" }\n'),
        ("requirements-dev.txt", "# more\nnumpy\n-e ../lib[cuda]  # here\n"),
        ("requirements.txt", "--editable=../lib\n"),
        ("requirements/gpu.txt", "../lib ; python_version > '3'\n"),
        ("pyproject.toml", '[project]\ndependencies = ["Lib>=2"]\n'),
        ("pyproject.toml", '[project.optional-dependencies]\ngpu = ["lib"]\n'),
        ("pyproject.toml", '[dependency-groups]\ntest = [{ include-group = "x" }, "lib"]\n'),
    ],
)
@pytest.mark.parametrize("kind", ["editable", "directory", "virtual"])
def test_where_a_project_names_it(tmp_path: Path, name: str, text: str, kind: str) -> None:
    root = tmp_path / "project"
    (root / name).parent.mkdir(parents=True)
    (root / name).write_text(text.replace("KIND", kind))
    installs = [Install("lib", tmp_path / "lib"), Install("other", tmp_path / "other")]
    assert editables.needed(installs, root, [], NOTHING.get) == installs[:1]


@pytest.mark.parametrize(
    "text", ["[", "package = 3\nproject = 3", "[[package]]\nsource = 3", "\xff"]
)
def test_files_that_can_not_be_read_name_nothing(tmp_path: Path, text: str) -> None:
    for name in ("uv.lock", "pyproject.toml", "requirements.txt"):
        (tmp_path / name).write_bytes(text.encode("latin-1"))
    assert editables.needed([Install("lib", Path("/lib"))], tmp_path, [], NOTHING.get) == []


def test_what_can_be_sent(tmp_path: Path) -> None:
    root = tmp_path / "project"
    names = ("plain", "hooked", "secret", "in-place", "elsewhere", "around")
    installs = {name: Install(name, tmp_path / name) for name in names}
    installs["around"] = Install("around", tmp_path)
    path = [str(tmp_path / "plain" / "src"), str(tmp_path / "in-place"), str(tmp_path)]
    served = {
        "hooked": str(tmp_path / "hooked" / "hooked" / "__init__.py"),
        "elsewhere": str(tmp_path / "elsewhere" / "elsewhere"),
    }
    suffix = SUFFIXES[0]
    modules = {
        "plain._c": str(tmp_path / "plain" / "venv" / "site-packages" / f"numpy{suffix}"),
        "own._c": str(root / f"_c{suffix}"),
        "in_place._c": str(tmp_path / "in-place" / f"_c{suffix}"),
        "elsewhere._c": f"/venv/site-packages/elsewhere/_c{suffix}",
    }
    found, notes = sendable(
        [installs[name] for name in names if name != "around"], root, path, served, modules
    )
    assert [each.name for each in found] == ["plain", "hooked"]
    assert [note.split("'")[1] for note in notes] == ["secret", "in-place", "elsewhere"]
    assert "'in_place._c' is compiled" in notes[1]
    around, _ = sendable([installs["around"]], root, path, {}, {"own._c": modules["own._c"]})
    assert around == [installs["around"]]
