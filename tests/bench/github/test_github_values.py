"""The grammar as values, and how long GitHub is waited for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hub.server import TOKEN, Fault, Hub
from hub.state import REPOSITORY
from pytest_remotegpu.bench.github.answers import ApiError, NotSureError
from pytest_remotegpu.bench.github.api import Api
from pytest_remotegpu.bench.github.asking import (
    GRAMMAR,
    AskingError,
    Wish,
    is_addressed,
    parse,
    shown,
)
from pytest_remotegpu.bench.github.runner import annotation, code, write_outputs

CARDS = ("L4", "A100", "A100-80GB", "H100!")
PAGE = (Path(__file__).parents[3] / "docs" / "ci.md").read_text("utf-8")
WORDS = st.sampled_from(["/benchmark", "A100", "H100!", "1.2", "at", "a" * 40, "10", "\u00a0", "x"])
SPACES = st.sampled_from([" ", "\t", "  ", "\n", "\r", "\u2028", ""])
NEAR = st.lists(st.tuples(WORDS, SPACES), max_size=7).map(
    lambda parts: "/benchmark " + "".join(word + space for word, space in parts)
)


@given(st.text() | NEAR)
@example("/benchmark A100 1.2 at " + "a" * 40)
def test_what_is_understood_is_what_was_written(text: str) -> None:
    trouble = "none"
    try:
        wish = parse(text, CARDS)
    except AskingError as error:
        wish, trouble = Wish(""), str(error)
    assert trouble.isascii()
    assert "\n" not in trouble
    if not wish.card:
        return
    command, card, *rest = text.split()
    assert (command, card) == ("/benchmark", wish.card)
    assert card in CARDS
    if wish.commit:
        assert rest[-2:] == ["at", wish.commit]
        assert re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", wish.commit)
        rest = rest[:-2]
    assert [float(word) for word in rest] == ([float(wish.margin)] if wish.margin else [])
    assert not wish.margin or re.fullmatch(r"[0-9]{1,2}(\.[0-9]{1,3})?", wish.margin)
    assert is_addressed(text)
    assert text.isascii()


@given(st.text())
def test_what_is_quoted_is_one_short_line_of_ascii(text: str) -> None:
    said = shown(text)
    assert said.isascii()
    assert said.isprintable()
    assert len(said) <= 10 * 63 + 2


@given(st.text())
def test_code_holds_nothing_but_text(text: str) -> None:
    inner = re.fullmatch(r"<code>(.*)</code>", code(text))
    assert inner
    assert not re.search(r"[<>@`|*_\[\]()!~\\]", inner[1])
    assert re.sub(r"&#\d+;", "", inner[1]).count("#") == 0


@given(
    st.dictionaries(
        st.sampled_from(["one", "two"]),
        st.text(st.characters(exclude_characters="\r", codec="utf-8")),
    )
)
def test_outputs_are_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, told: dict[str, str]
) -> None:
    file = tmp_path_factory.mktemp("outputs") / "file"
    write_outputs({"GITHUB_OUTPUT": str(file)}, told)
    text = file.read_bytes().decode("utf-8")
    found = re.findall(r"(\w+)<<(end-[0-9a-f]{32})\n(.*?)\n\2\n", text, re.DOTALL)
    assert {name: value for name, _, value in found} == told
    assert len({mark for _, mark, _ in found}) == len(told)


@given(st.text())
def test_annotation_is_one_line(text: str) -> None:
    said = annotation("error", text)
    assert "\n" not in said
    assert "\r" not in said
    assert said.startswith("::error::")


def test_page_has_the_grammar_and_examples_of_it() -> None:
    assert f"\n{GRAMMAR}\n" in PAGE
    lines = re.findall(r"^/benchmark (?!CARD).*$", PAGE, re.MULTILINE)
    assert [parse(line, ("A100", "A100-80GB", "H100")) for line in lines] == [
        Wish("A100"),
        Wish("A100-80GB", "1.5"),
        Wish("H100", "1.1", lines[2].split()[-1]),
    ]


# waiting


class Clock:
    """Lets time pass at once, and knows how much of it has."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.waits.append(seconds)


@pytest.fixture
def clock() -> Clock:
    """Give a clock."""
    return Clock()


@pytest.fixture
def api(hub: Hub, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Api:
    """Give the interface, on that clock."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return Api(hub.url, REPOSITORY, TOKEN, clock)


def test_waits_grow_and_end(api: Api, hub: Hub, clock: Clock) -> None:
    hub.faults.append(Fault("GET pulls/7", 503, 99))
    with pytest.raises(ApiError, match="GET pulls/7: GitHub answered 503") as caught:
        api.get("pulls/7")
    assert caught.value.status == 503
    assert clock.waits == [1, 2, 4]
    assert hub.asked == ["GET pulls/7"] * 4


def test_what_is_not_safe_to_repeat_is_not_repeated(api: Api, hub: Hub, clock: Clock) -> None:
    hub.faults.append(Fault("POST issues/7/comments", 500, 99))
    with pytest.raises(NotSureError):
        api.make("issues/7/comments", {"body": "x"})
    hub.faults[:] = [Fault("POST issues/7/comments", 0, 99)]
    with pytest.raises(NotSureError):
        api.make("issues/7/comments", {"body": "x"})
    assert clock.waits == []
    assert hub.asked == ["POST issues/7/comments"] * 2


def test_what_was_certainly_not_done_is_repeated(api: Api, hub: Hub, clock: Clock) -> None:
    hub.faults.append(Fault("POST issues/7/comments", 429, 2, headers={"Retry-After": "7"}))
    assert api.make("issues/7/comments", {"body": "x"})["body"] == "x"
    assert clock.waits == [7, 7]


@pytest.mark.parametrize(
    ("headers", "body", "waits"),
    [
        ({"Retry-After": "61"}, b"{}", []),
        ({"Retry-After": "25"}, b"{}", [25, 25]),
        ({"Retry-After": "-1"}, b"{}", []),
        ({"Retry-After": "nan"}, b"{}", []),
        ({"Retry-After": "Thu, 01 Jan 2026 00:00:00 GMT"}, b"{}", []),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "0"}, b"{}", [1, 1, 1]),
        ({"X-RateLimit-Remaining": "0"}, b"{}", [1, 2, 4]),
        ({"X-RateLimit-Remaining": "5"}, b"{}", []),
        ({}, b'{"message": "You have exceeded a secondary rate limit"}', [1, 2, 4]),
        ({}, b"{}", []),
    ],
)
def test_limits_are_waited_for_within_bounds(
    api: Api, hub: Hub, clock: Clock, headers: dict[str, str], body: bytes, waits: list[float]
) -> None:
    hub.faults.append(Fault("GET pulls/7", 403, 99, headers=headers, body=body))
    with pytest.raises(ApiError, match="GitHub answered 403"):
        api.get("pulls/7")
    assert clock.waits == waits


def test_list_that_never_ends_is_an_error(api: Api, hub: Hub) -> None:
    more = {"Link": '<https://elsewhere.example/>; rel="next"'}
    hub.faults.append(Fault("GET issues/7/comments", 200, 999, body=b"[{}]", headers=more))
    with pytest.raises(ApiError, match="more than 10000"):
        list(api.list("issues/7/comments"))
    assert len(hub.asked) == 100


def test_answer_that_never_ends_is_an_error(api: Api, hub: Hub, clock: Clock) -> None:
    hub.faults.append(Fault("GET pulls/7", 200, 99, body=json.dumps("x" * 11_000_000).encode()))
    with pytest.raises(ApiError, match="longer than 10485760 bytes"):
        api.get("pulls/7")
    assert clock.waits == [1, 2, 4]


def test_jobs_with_rights_need_the_standard_library_only() -> None:
    script = "import sys, pytest_remotegpu.bench.github.__main__; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "urllib" in loaded
    unwanted = {"cloudpickle", "modal", "msgspec", "numpy", "pluggy", "pynvml", "pytest", "torch"}
    assert loaded & (unwanted | {"_pytest", "packaging", "ruamel", "tomlkit"}) == set()
