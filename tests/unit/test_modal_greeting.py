"""A container's first words: only what can be meant is taken."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.backends.modal.greeting import Greeting, read


@given(st.binary() | st.text().map(str.encode))
def test_anything(data: bytes) -> None:
    found = read(data)
    assert found is None or found.container


@pytest.mark.parametrize("name", ["", "a b", "\x1b[2J", "ta-\n", "x" * 65, 7, None, "t\u00e4"])
def test_names_that_are_none(name: object) -> None:
    assert read(json.dumps({"container": name, "call": "fc-1"}).encode()) is None


@pytest.mark.parametrize("call", ["", "fc-", "fc-1 ", "ap-1", "fc-\u0661", 7, None, ["fc-1"]])
def test_calls_that_are_none(call: object) -> None:
    data = json.dumps({"container": "ta-1", "call": call, "age": "old"}).encode()
    assert read(data) == Greeting("ta-1", "", 0.0)


@pytest.mark.parametrize("data", [b"[" * 100_000, b"[1]", b"7", b"{}", b'{"container": "ta-1"}'])
def test_what_is_no_greeting(data: bytes) -> None:
    assert read(data) is None
