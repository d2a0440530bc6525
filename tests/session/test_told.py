"""What a far side tells of itself: for whom it waits, which cards it has, how long things took."""

from __future__ import annotations

import re

import pytest

from fakes import Far, Script, report
from pytest_remotegpu.protocol import events
from pytest_remotegpu.protocol.plain import to_text
from stage import FAR, Played, Stage

CARDS = ("NVIDIA H200 (GPU-5d0c)", "NVIDIA H200 (GPU-77aa)")


def leased(*cards: str) -> events.Leased:
    """Give cards."""
    return events.Leased([to_text(card) for card in cards], 0.25)


def owns_cards(far: Far) -> None:
    """Wait twice for cards, get one, give it back between two tests, and get another."""
    far.greet(pretend=None, gpus=CARDS)
    for text in (b"card 0: pid 1", b"card 0: pid 1", b"card 0: pid 2", b""):
        far.say(events.Waiting(text))
    far.say(leased(CARDS[0]), events.Phases([("fork", 0.125), ("imports", 0.5)]))
    far.say(events.Collected(0.0625, b"/there"))
    far.run(0)
    far.say(leased(CARDS[1]))
    far.run(1, 2)
    far.end()


def properties(stage: Stage) -> list[str]:
    """Give the cards of the shipped tests, as the junit file has them, in order of their ids."""
    written = (stage.path.parent / "j.xml").read_text()
    case = r'name="(test_[abc])".*?<property name="remotegpu_gpu" value="([^"]*)"'
    return [value for _name, value in sorted(re.findall(case, written, re.DOTALL))]


def play(stage: Stage, *args: str) -> Played:
    played = stage.run(owns_cards, args=("--junitxml=../j.xml", *args))
    assert played.ret == pytest.ExitCode.OK, played.text
    return played


def test_a_wait_is_shown_once_for_each_text(stage: Stage) -> None:
    text = play(stage).text
    waits = re.findall(r"^remote: waiting for (.*)$", text, re.MULTILINE)
    assert waits == ["1 GPU: card 0: pid 1", "1 GPU: card 0: pid 2"]


def test_a_test_names_its_card_and_the_summary_all_of_them(stage: Stage) -> None:
    text = play(stage).text
    assert properties(stage) == [CARDS[0], CARDS[1], CARDS[1]]
    assert f"on scripted: {CARDS[0]}, {CARDS[1]}" in text
    assert "remote timeline" not in text


MADE_OF = {"torch": "2.11.0+cu130", "CUDA": "13.0", "driver": "580.65.06", "triton": "3.6"}
HEADING = "remote: the far side has torch 2.11.0+cu130, CUDA 13.0, driver 580.65.06\n"


def made_of(*, real: bool = True) -> Script:
    """Tell what the far side is made of, and run what is asked for."""
    cards = {"pretend": None, "gpus": CARDS} if real else {"pretend": 2}

    def script(far: Far) -> None:
        far.greet(extra=MADE_OF, **cards)
        far.serve()

    return script


def test_what_tests_run_on_is_told_before_the_first_of_them(stage: Stage) -> None:
    """Once, whatever comes in the place of a worker that was lost."""

    def is_lost(far: Far) -> None:
        far.greet(extra={**MADE_OF, "torch": "2.11.0+cu130"}, pretend=None, gpus=CARDS)
        far.say(events.Started(0))

    played = stage.run(is_lost, made_of(), args=("-v",))
    assert played.ret == pytest.ExitCode.OK, played.text
    assert played.text.count(HEADING) == 1
    head, _, rest = played.text.partition(HEADING)
    assert "collected" in head
    assert "PASSED" not in head
    assert "PASSED" in rest


@pytest.mark.parametrize("option", ["-q", "--no-header"])
def test_where_no_header_is_wanted_it_is_not_told(stage: Stage, option: str) -> None:
    played = stage.run(made_of(), args=(option,))
    assert played.ret == pytest.ExitCode.OK, played.text
    assert HEADING not in played.text
    assert "with torch 2.11.0+cu130, CUDA 13.0, driver 580.65.06, triton 3.6\n" in played.text


def test_of_pretended_cards_in_the_same_environment_it_is_no_news(stage: Stage) -> None:
    played = stage.run(made_of(real=False))
    assert played.ret == pytest.ExitCode.OK, played.text
    assert "the far side has" not in played.text


def test_pretend_cards_stay_what_they_are(stage: Stage) -> None:
    def pretends(far: Far) -> None:
        far.greet()
        far.say(leased("a pretend card"))
        far.run(0, 1, 2)
        far.end()

    played = stage.run(pretends, args=("--junitxml=../j.xml",))
    assert played.ret == pytest.ExitCode.OK
    assert properties(stage) == ["1 GPU (pretend)"] * 3


def test_the_timeline_has_each_phase_of_each_worker(stage: Stage) -> None:
    text = play(stage, "--remote-timeline").text
    table = text.partition("remote timeline")[2].partition("\n=")[0]
    row = r"^(\S+) +(-?[\d.]+) s +([\d.]+) s  (.+)$"
    rows = [
        (who, float(start), float(seconds), name)
        for who, start, seconds, name in re.findall(row, table, re.MULTILINE)
    ]
    assert [(who, name) for who, _, _, name in rows[:2]] == [
        ("here", "collection here"),
        ("here", "snapshot"),
    ]
    assert {who for who, *_ in rows[2:]} == {"scripted-1"}
    names = [name for _, _, _, name in rows[2:]]
    assert set(names) == {
        "worker opened", "hello", "cards", "fork", "imports", "collection there",
        "first test", "last test", "tests", "end",
    }  # fmt: skip
    seconds = {name: duration for _, _, duration, name in rows}
    assert (seconds["fork"], seconds["imports"], seconds["cards"]) == (0.125, 0.5, 0.25)
    assert seconds["collection there"] == pytest.approx(0.062, abs=0.001)
    starts = {name: start for _, start, _, name in rows}
    assert starts["imports"] == pytest.approx(starts["fork"] + 0.125, abs=0.002)
    assert starts["first test"] <= starts["last test"] <= starts["end"]
    assert [start for _, start, _, _ in rows[2:]] == sorted(start for _, start, _, _ in rows[2:])


def test_the_timeline_of_a_session_without_far_tests_is_none(stage: Stage) -> None:
    played = stage.run(owns_cards, args=("--remote-timeline", "-k", "test_here"))
    assert played.ret == pytest.ExitCode.OK
    assert "remote timeline" not in played.text


def test_the_cards_of_a_worker_that_is_gone_are_nobodys(stage: Stage) -> None:
    names: list[str] = []

    def is_lost(far: Far) -> None:
        far.greet(pretend=None)
        far.say(leased(CARDS[0]), events.Started(0), report(0, "setup"))

    def serves(far: Far) -> None:
        names.append(far.order.worker)
        far.greet(pretend=None)
        far.serve()

    played = stage.run(is_lost, serves, args=("--junitxml=../j.xml",))
    assert played.ret == pytest.ExitCode.OK, played.text
    assert names[0] == "scripted-2"
    assert properties(stage) == ["1 GPU"] * 3
    written = (stage.path.parent / "j.xml").read_text()
    assert written.count('name="remotegpu_worker" value="scripted-2"') == len(FAR)
