"""What a ``.dockerignore`` keeps out of an image."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.recipe.ignoring import Ignored


@pytest.mark.parametrize(
    ("text", "out", "kept"),
    [
        ("", [], [".env", "a/b"]),
        (".env\n", [".env"], ["conf/.env", "x.env"]),
        ("**/.env\n", [".env", "conf/.env", "a/b/.env"], ["conf/.envrc"]),
        ("conf\n", ["conf/a", "conf/b/c"], ["a/conf", "conf2"]),
        ("/conf/\n", ["conf/a"], ["a/conf"]),
        ("*.key\n", ["a.key"], ["conf/a.key"]),
        ("*/*.key\n", ["conf/a.key"], ["a.key", "a/b/c.key"]),
        ("conf/**\n!conf/a.cfg\n", ["conf/b"], ["conf/a.cfg"]),
        ("!a\na\n", ["a"], []),
        ("# a\n\n  b  \n", ["b"], ["a", "# a"]),
        ("a?[0-9].txt\n", ["ab1.txt"], ["a/1.txt", "abc.txt"]),
        ("\\!odd\n", ["!odd"], ["odd"]),
        ("\ufeffa\n!\n.\n", ["a"], ["b"]),
    ],
)
def test_the_last_rule_that_fits_counts(text: str, out: list[str], kept: list[str]) -> None:
    ignored = Ignored.parse(text)
    assert [path for path in [*out, *kept] if ignored.has(path)] == out


@given(st.text(), st.text(min_size=1))
def test_any_text_can_be_read(text: str, path: str) -> None:
    Ignored.parse(text).has(path)
