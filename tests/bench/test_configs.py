"""Changing two numbers of a configuration and nothing else."""

from __future__ import annotations

import json
import os
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.bench import configs, places
from pytest_remotegpu.errors import UsageError

BOTH = {"fa2_min_len_win": 512, "fa2_min_len_cmp": 999999}

YAML = """\
# thresholds of this model
model:   # wide
    heads: [8,  16]   # two

runtime:
    other:   'kept'
    fa2_min_len_win:   1024   # measured last year
    fa2_min_len_cmp: -1
    text: |
      fa2_min_len_win: 7
"""
TOML = """\
title = 'model'   # wide

[runtime]   # of the loop
fa2_min_len_win  =  1024   # measured last year
fa2_min_len_cmp=-1
other = [ 1,2 ]

[runtime.deeper]
fa2_min_len_win = 7
"""
JSON = """\
{"model": {"heads": [8,  16]},
\t"runtime" : { "other": 1.50,
\t\t"fa2_min_len_win" :  1024,
\t\t"fa2_min_len_cmp":-1 }
}
"""


def _file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(("name", "text"), [("a.yaml", YAML), ("a.toml", TOML), ("a.json", JSON)])
def test_only_the_two_numbers_change(name: str, text: str, tmp_path: Path) -> None:
    path = _file(tmp_path, name, text)
    found = configs.plan(path, BOTH)
    wanted = text.replace("1024", "512").replace("-1", "999999")
    assert found.after.decode() == wanted
    assert path.read_text() == text  # nothing is written yet
    backup = found.write()
    assert path.read_text() == wanted
    assert backup is not None
    assert backup.name == f"{name}.bak"
    assert backup.read_text() == text
    lines = found.diff.splitlines()
    assert len([line for line in lines if line.startswith("+") and "+++" not in line]) == 2
    assert len([line for line in lines if line.startswith("-") and "---" not in line]) == 2


@pytest.mark.parametrize(("name", "text"), [("a.yml", YAML), ("a.toml", TOML), ("a.json", JSON)])
def test_one_alone_and_none(name: str, text: str, tmp_path: Path) -> None:
    path = _file(tmp_path, name, text)
    assert configs.plan(path, {"fa2_min_len_cmp": 5}).after.decode() == text.replace("-1", "5")
    same = configs.plan(path, {"fa2_min_len_win": 1024})
    assert same.diff == ""
    assert same.write() is None
    assert [each.name for each in tmp_path.iterdir()] == [name]


MISSING = {
    "empty.yaml": ("", "runtime:\n  fa2_min_len_win: 512\n"),
    "comment.yaml": ("# x\n", "# x\nruntime:\n  fa2_min_len_win: 512\n"),
    "other.yaml": ("a: 1  # x", "runtime:\n  fa2_min_len_win: 512\na: 1  # x"),
    "started.yaml": ("---\na: 1\n", "---\nruntime:\n  fa2_min_len_win: 512\na: 1\n"),
    "null.yaml": ("runtime:  # x\nb: 2\n", "runtime:  # x\n  fa2_min_len_win: 512\nb: 2\n"),
    "tilde.yaml": ("runtime: ~\n", "runtime:\n  fa2_min_len_win: 512\n"),
    "block.yaml": (
        "runtime:\n     b: 2 # x\n",
        "runtime:\n     fa2_min_len_win: 512\n     b: 2 # x\n",
    ),
    "flow.yaml": ("runtime: {b: 2}\n", "runtime: {fa2_min_len_win: 512, b: 2}\n"),
    "flowing.yaml": ("{}", "{runtime: {fa2_min_len_win: 512}}"),
    "none.yaml": ("runtime:\n  fa2_min_len_win:\n", "runtime:\n  fa2_min_len_win: 512\n"),
    "later.yaml": (
        "runtime:\n  fa2_min_len_win:  # x\n  b: 1\n",
        "runtime:\n  fa2_min_len_win: 512  # x\n  b: 1\n",
    ),
    "quoted.yaml": (
        "runtime: {'fa2_min_len_win': '8'}\n",
        "runtime: {'fa2_min_len_win': 512}\n",
    ),
    "true.yaml": ("runtime: {fa2_min_len_win: true}\n", "runtime: {fa2_min_len_win: 512}\n"),
    "windows.yaml": (
        "runtime:\r\n  b: 2\r\n",
        "runtime:\r\n  fa2_min_len_win: 512\r\n  b: 2\r\n",
    ),
    "mark.yaml": (
        "\ufeffruntime:\n  fa2_min_len_win: 1\n",
        "\ufeffruntime:\n  fa2_min_len_win: 512\n",
    ),
    "dotted.yaml": ("runtime.fa2_min_len_win: 1 # x\n", "runtime.fa2_min_len_win: 512 # x\n"),
    "empty.json": ("{}", '{"runtime": {"fa2_min_len_win": 512}}'),
    "other.json": ('{"a": 1}\n', '{"runtime": {"fa2_min_len_win": 512}, "a": 1}\n'),
    "lines.json": (
        '{\n    "runtime": {\n        "b": 2\n    }\n}',
        '{\n    "runtime": {\n        "fa2_min_len_win": 512,\n        "b": 2\n    }\n}',
    ),
    "escaped.json": (
        '{"runtime": {"fa2_min_len_\\u0077in": 1}}',
        '{"runtime": {"fa2_min_len_\\u0077in": 512}}',
    ),
    "float.json": (
        '{"runtime": {"fa2_min_len_win": 512.0}}',
        '{"runtime": {"fa2_min_len_win": 512}}',
    ),
    "nan.json": (
        '{"a": NaN, "runtime": {"fa2_min_len_win": 1e3}}',
        '{"a": NaN, "runtime": {"fa2_min_len_win": 512}}',
    ),
    "empty.toml": ("", "[runtime]\nfa2_min_len_win = 512\n"),
    "other.toml": ("a = 1 # x\n", "a = 1 # x\n\n[runtime]\nfa2_min_len_win = 512\n"),
    "dotted.toml": ("runtime.fa2_min_len_win = 1 # x\n", "runtime.fa2_min_len_win = 512 # x\n"),
    "inline.toml": (
        "runtime = { fa2_min_len_win = 1, b = 2 }\n",
        "runtime = { fa2_min_len_win = 512, b = 2 }\n",
    ),
    "windows.toml": (
        "[runtime]\r\nb = 2\r\n[c]\r\n",
        "[runtime]\r\nb = 2\r\nfa2_min_len_win = 512\r\n[c]\r\n",
    ),
    "mixed.toml": (
        "a = 1\n[runtime]\r\nfa2_min_len_win = 1\r\n",
        "a = 1\n[runtime]\r\nfa2_min_len_win = 512\r\n",
    ),
    "block.toml": ("[runtime]\nb = 2 # x\n", "[runtime]\nb = 2 # x\nfa2_min_len_win = 512\n"),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_place_is_found(name: str, tmp_path: Path) -> None:
    before, after = MISSING[name]
    path = _file(tmp_path, name, before)
    assert configs.plan(path, {"fa2_min_len_win": 512}).after.decode() == after


REFUSED = {
    "text.ini": ("", "has the suffix '.ini'"),
    "broken.yaml": ("a: [1\n", "is broken YAML"),
    "twice.yaml": ("runtime: {fa2_min_len_win: 1, fa2_min_len_win: 2}\n", "is broken YAML"),
    "several.yaml": ("a: 1\n---\nb: 1\n", "is broken YAML"),
    "list.yaml": ("- 1\n", "holds no table of keys but a list"),
    "number.yaml": ("runtime: 3\n", "runtime in .* is 3, and has to be a table"),
    "deep.yaml": ("runtime: {fa2_min_len_win: [1]}\n", "a sequence in its place"),
    "anchor.yaml": ("runtime: {fa2_min_len_win: &a 1, b: *a}\n", "the anchor &a"),
    "alias.yaml": ("b: &a 1\nruntime: {fa2_min_len_win: *a}\n", "can't be changed alone"),
    "shared.yaml": (
        "b: &a {fa2_min_len_win: 1}\nruntime: *a\n",
        "other values would change with it",
    ),
    "merged.yaml": (
        "b: &a {fa2_min_len_win: 1}\nruntime:\n  <<: *a\n  c: 1\nd: {<<: *a}\n",
        "",
    ),
    "both.yaml": ("runtime.fa2_min_len_win: 1\nruntime: {fa2_min_len_win: 1}\n", "twice"),
    "broken.json": ("{", "is broken JSON"),
    "twice.json": ('{"runtime": {"fa2_min_len_win": 1, "fa2_min_len_win": 2}}', "is there twice"),
    "comment.json": ("{} // x", "is broken JSON"),
    "list.json": ("[]", "holds no table"),
    "null.json": ('{"runtime": null}', "runtime is no object"),
    "deep.json": ('{"runtime": {"fa2_min_len_win": {}}}', "an object or an array"),
    "broken.toml": ("a = \n", "is broken TOML"),
    "deep.toml": ("runtime.fa2_min_len_win = [1]\n", "a table or a list in its place"),
    "list.toml": ("[[runtime]]\na = 1\n", "has to be a table"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_be_changed_stays(name: str, tmp_path: Path) -> None:
    text, words = REFUSED[name]
    path = _file(tmp_path, name, text)
    if not words:  # its own key goes before the merged one: nothing else changes
        assert "fa2_min_len_win: 512" in configs.plan(path, {"fa2_min_len_win": 512}).after.decode()
        return
    with pytest.raises(UsageError, match=words):
        configs.plan(path, {"fa2_min_len_win": 512})
    assert path.read_text() == text


def test_a_document_that_refers_to_itself(tmp_path: Path) -> None:
    """What is in many places by aliases is looked at once, or this would never end."""
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
    for more in "runtime: {}", "round: &r {in: *r}\nruntime: {}":
        text = "\n".join([*lines, more, ""])
        path = _file(tmp_path, "a.yaml", text)
        changed = configs.plan(path, {"fa2_min_len_win": 512}).after.decode()
        assert changed == text.replace("runtime: {}", "runtime: {fa2_min_len_win: 512}")
    path = _file(tmp_path, "a.yaml", "\n".join([*lines, "runtime: *a39", ""]))
    with pytest.raises(UsageError, match="has to be a table of keys"):
        configs.plan(path, {"fa2_min_len_win": 512})


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read: No such file"):
        configs.plan(tmp_path / "none.yaml", BOTH)
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(UsageError, match="can't be read: Is a directory"):
        configs.plan(tmp_path / "folder.yaml", BOTH)
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9\n")
    with pytest.raises(UsageError, match="is no UTF-8: byte 3"):
        configs.plan(tmp_path / "latin.yaml", BOTH)
    deep = "[" * 20_000 + "]" * 20_000
    for name, text in ("deep.json", f'{{"a": {deep}}}'), ("deep.yaml", f"a: {deep}\n"):
        with pytest.raises(UsageError, match=r"is broken (JSON|YAML): "):
            configs.plan(_file(tmp_path, name, text), BOTH)
    with pytest.raises(UsageError, match="never batch_size"):
        configs.plan(_file(tmp_path, "a.yaml", YAML), {"batch_size": 1})


def test_a_file_that_changed_meanwhile_is_left(tmp_path: Path) -> None:
    path = _file(tmp_path, "a.yaml", YAML)
    found = configs.plan(path, BOTH)
    path.write_text("new: 1\n")
    with pytest.raises(UsageError, match="was changed meanwhile"):
        found.write()
    assert path.read_text() == "new: 1\n"
    assert [each.name for each in tmp_path.iterdir()] == ["a.yaml"]


@pytest.mark.skipif(sys.platform == "win32", reason="modes and links")
def test_mode_and_link_stay(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path = _file(tmp_path / "real", "a.yaml", YAML)
    path.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    configs.plan(link, BOTH).write()
    assert link.is_symlink()
    assert "512" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    path = _file(tmp_path, "a.yaml", YAML)
    found = configs.plan(path, BOTH)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(UsageError, match=r"can't be changed: .*; it is as it was"):
            found.write()
    finally:
        tmp_path.chmod(0o700)
    assert path.read_text() == YAML


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=4), PLAIN, max_size=3),
    st.one_of(st.none(), st.dictionaries(st.sampled_from([*configs.KEYS, "b"]), st.integers())),
    st.sampled_from([None, 0, 3, "\t"]),
    st.integers(-1, 10**6),
)
def test_any_json(
    data: dict[str, Any], runtime: dict[str, int] | None, indent: int | str | None, value: int
) -> None:
    if runtime is not None:
        data["runtime"] = runtime
    text = json.dumps(data, indent=indent)
    found = json.loads(places.set_in_json(text, ("runtime", "fa2_min_len_win"), value))
    data.setdefault("runtime", {})["fa2_min_len_win"] = value
    assert found == data


def test_toml_is_read_as_it_was(tmp_path: Path) -> None:
    path = _file(tmp_path, "a.toml", TOML)
    found = tomllib.loads(configs.plan(path, BOTH).after.decode())
    assert found["runtime"]["deeper"] == {"fa2_min_len_win": 7}
