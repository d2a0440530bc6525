"""Files of the project in errors: named by their place on the user's side, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.worker import moved

THERE, HERE = "/root/.cache/trees/a-0/tree", "/home/me/project"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('File "{}/t.py", line 1', 'File "{}/t.py", line 1'),
        ("{}/t.py:1: Error", "{}/t.py:1: Error"),
        ("a={}/t.py,({}/u.py) '{}/v'", "a={}/t.py,({}/u.py) '{}/v'"),
        ("/mnt{}/t.py", None),
        ("x{}/t.py", None),
        ("{}-more/t.py", None),
        ("{}", None),
    ],
)
def test_text(text: str, found: str | None) -> None:
    """Where the folder begins a path, and nowhere else."""
    there = text.replace("{}", THERE)
    expected = there if found is None else found.replace("{}", HERE)
    assert moved.text(there, THERE, HERE) == expected


def test_a_folder_that_reads_like_a_pattern() -> None:
    assert moved.text("/a+(b/t.py", "/a+(b", r"/c\1") == r"/c\1/t.py"


@given(st.text())
def test_other_text_stays(text: str) -> None:
    assert moved.text(text, THERE, HERE) == text


def native(lines: list[Any]) -> dict[str, Any]:
    entry = {"type": "ReprEntryNative", "data": {"lines": lines}}
    return {"reprentries": [entry], "extraline": None, "style": "native"}


def test_parts_of_a_traceback() -> None:
    """Paths move, and so do those in the text of each link of a chain; what a test shows stays."""

    def error(root: str, shown: str) -> dict[str, Any]:
        crash = {"path": f"{root}/t.py", "lineno": 3, "message": f"{shown}/t.py is odd"}
        group = native([f'  + File "{root}/t.py", line 1\n  |  raise\n', f'  | "{root}/u.py"\n'])
        entry = {"type": "ReprEntry", "data": {"lines": [f"E  {shown}/t.py"], "reprfileloc": crash}}
        own = {"reprentries": [entry], "extraline": None, "style": "long"}
        chain = [(group, crash, "The above exception"), (own, crash, None)]
        return {"reprcrash": crash, "reprtraceback": own, "sections": [], "chain": chain}

    assert moved.longrepr(error(THERE, THERE), THERE, HERE) == error(HERE, THERE)


@pytest.mark.parametrize("data", [None, {}, {"lines": None}, {"lines": [None, 1]}, []])
def test_an_entry_of_another_shape(data: Any) -> None:
    entry = {"type": "ReprEntryNative", "data": data}
    assert moved.longrepr(entry, THERE, HERE) == entry


def test_the_place_of_a_skip() -> None:
    place = (f"{THERE}/t.py", 3, "Skipped: why")
    assert moved.longrepr(place, THERE, HERE) == (f"{HERE}/t.py", 3, "Skipped: why")


@pytest.mark.parametrize("path", [f"{THERE}-more/t.py", "t.py", f"/mnt{THERE}/t.py"])
def test_a_path_elsewhere(path: str) -> None:
    assert moved.path(path, (THERE, HERE)) == path
    assert moved.path(path, None) == path
