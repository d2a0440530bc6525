"""The host's cards: which of them a process sees, what is known of them, who uses them.

The hosts are files that a stand-in for NVML reads.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cardfile
from cardfile import GIB, fake_card
from pytest_remotegpu import cards
from pytest_remotegpu.cards import Card, User

Host = Callable[..., None]
VARIABLE = "CUDA_VISIBLE_DEVICES"
H200 = Card("0", "GPU-5d0c1111-2222-3333-4444-555566667777", "NVIDIA H200", 141 * GIB, 9.0)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Give this process the cards that are handed to the fixture's value."""
    path = tmp_path_factory.mktemp("host") / "cards.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "pynvml", raising=False)
        patch.syspath_prepend(cardfile.STANDIN)
        patch.setenv("FAKE_NVML", str(path))
        yield lambda *cards, **more: cardfile.write_cards(path, cards, **more)
        standin = sys.modules["pynvml"]
        with pytest.raises(standin.NVMLError, match="Uninitialized"):
            standin.nvmlDeviceGetCount()  # whoever opened the library has closed it


def seen(value: str | None, **more: str) -> list[str]:
    """Name the cards that a process sees with this value of the variable."""
    environ = more if value is None else {VARIABLE: value, **more}
    return [card.name for card in cards.visible(environ)]


def uuids(*starts: str) -> list[dict[str, Any]]:
    """Describe cards whose UUIDs begin so, named by their places."""
    rest = "-aaaa-4bbb-8ccc-dddddddddddd"
    return [
        fake_card(at, str(at), uuid=f"GPU-{start:e<8}{rest}") for at, start in enumerate(starts)
    ]


# which cards a process sees


def test_all_cards_are_seen_where_nothing_is_said(host: Host) -> None:
    host(
        fake_card(1),
        fake_card(2, "Tesla T4", gib=15, capability=7.5),
        fake_card(3, "NVIDIA B200", gib=179, capability=10.0),
    )
    assert cards.visible({}) == [
        Card("0", "GPU-00000001-0000-4000-8000-000000000001", "NVIDIA H200", 150860726272, 9.0),
        Card("1", "GPU-00000002-0000-4000-8000-000000000002", "Tesla T4", 15 * GIB, 7.5),
        Card("2", "GPU-00000003-0000-4000-8000-000000000003", "NVIDIA B200", 179 * GIB, 10.0),
    ]


ONE, TWO = "5d0c1111-aaaa-4bbb-8ccc-dddddddddddd", "5d0eeeee-aaaa-4bbb-8ccc-dddddddddddd"


@pytest.mark.parametrize(
    ("value", "names"),
    [
        # seen on two cards, driver 580, as all that follow
        ("", ""),
        (" ", ""),
        ("0", "0"),
        ("1,0", "10"),
        (" 0 , 1 ", "01"),
        ("\t1", "1"),
        ("\v\r1", "1"),
        ("01", "1"),
        ("+1", "1"),
        ("-0", "0"),
        ("+ 1", ""),
        ("--1", ""),
        ("0x1", "0"),
        ("1.5", "1"),
        ("1gpu", "1"),
        ("0;1", "0"),
        ("0 1", "0"),
        ("\uff11", ""),
        ("4294967297", "1"),
        ("-4294967295", "1"),
        ("1,4294967297", ""),
        ("99999999999", ""),
        ("18446744073709551616", ""),
        ("42949672960000000000", ""),
        ("9" * 5000, ""),
        # the list ends at the first entry that names nothing
        ("-1", ""),
        ("0,-1,1", "0"),
        ("-1,0,0", ""),
        ("0,2,1", "0"),
        ("0,2,0", "0"),
        ("0,,1", "0"),
        (",0", ""),
        ("2", ""),
        ("2,2", ""),
        ("all", ""),
        ("none", ""),
        ("NoDevFiles", ""),
        # a card that is named twice makes it worthless
        ("0,0", ""),
        ("0,1,0", ""),
        ("1,1,-1", ""),
        (f"GPU-{ONE},GPU-{ONE}", ""),
        (f"GPU-{ONE},GPU-5d0c", ""),
        # UUIDs
        (f"GPU-{TWO},GPU-{ONE}", "10"),
        ("GPU-5d0c", "0"),
        ("GPU-5d0e,GPU-5d0c", "10"),
        ("GPU-5d0", ""),
        ("GPU-5d0c,GPU-5d0,GPU-5d0e", "0"),
        ("GPU-", ""),
        ("GPU", ""),
        (ONE, ""),
        (f"gpu-{ONE}", ""),
        (f"GPU-{ONE.upper()}", "0"),
        (f" GPU-{ONE}", ""),
        (f"GPU-{ONE} ", "0"),
        (f"GPU-{ONE}, GPU-{TWO}", "0"),
        (f"GPU-{ONE}junk", "0"),
        (f"GPU-{ONE}0", "0"),
        (f"GPU-{ONE[:-1]}", "0"),
        (f"GPU-{ONE[:-1]}-", "0"),
        (f"GPU-{ONE.replace('-', '')}", "0"),
        ("GPU-5d0c-", "0"),
        ("GPU-5d-0c--11", "0"),
        ("GPU--5d0c", "0"),
        ("GPU-5d0c ", ""),
        ("GPU-5d0cjunk", ""),
        (f"GPU-0x{ONE}", ""),
        ("GPU-ffffffff", ""),
        # either numbers or UUIDs
        (f"0,GPU-{TWO}", "0"),
        (f"GPU-{ONE},1", "0"),
        (f"1,GPU-{ONE},0", "1"),
        (f"0,MIG-{TWO}", "0"),
        # a whole card by the word for slices
        (f"MIG-{ONE},GPU-{TWO}", "01"),
        ("MIG-5d0c", "0"),
        (f"MIG-GPU-{ONE}/1/0", ""),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(value: str, names: str, host: Host) -> None:
    host(*uuids("5d0c1111", "5d0"))
    assert seen(value) == list(names)


def test_entries_are_kept_as_they_stand(host: Host) -> None:
    host(*uuids("5d0c", "5d0e", "aa"))
    for value in ("GPU-5d0e,GPU-AA", "02,1", "1 , 0"):
        tokens = [card.token for card in cards.visible({VARIABLE: value})]
        assert tokens == [entry.strip() for entry in value.split(",")]


distinct = st.lists(st.text("0123456789abcdef", min_size=8, max_size=8), unique=True, max_size=6)


def beginnings(starts: Sequence[str], at: int) -> list[str]:
    """List the beginnings of a card's UUID that no other card's UUID has."""
    others = [start for start in starts if start != starts[at]]
    return [
        starts[at][:length]
        for length in range(1, 9)
        if not any(start.startswith(starts[at][:length]) for start in others)
    ]


@st.composite
def lists_of_cards(draw: st.DrawFn) -> tuple[list[str], list[int], str]:
    """Draw a host, cards of it, and a value of the variable that names these and then no more."""
    starts = draw(distinct.filter(bool))
    chosen = draw(st.lists(st.sampled_from(range(len(starts))), max_size=6))
    if draw(st.booleans()):
        spaces = st.text(" \t", max_size=2)
        entries = [f"{draw(spaces)}{'0' * draw(st.integers(0, 2))}{at}" for at in chosen]
        wrong = st.sampled_from(["-1", "x", "", str(len(starts)), f"GPU-{starts[0]}"])
    else:
        entries = [f"GPU-{draw(st.sampled_from(beginnings(starts, at)))}" for at in chosen]
        wrong = st.sampled_from(["-1", "0", "", "GPU-", "GPU-x", "x", f"gpu-{starts[0]}"])
    ends = draw(st.booleans())
    if ends and (entries or not starts):
        entries += [draw(wrong), *draw(st.lists(st.sampled_from(["0", "1", "GPU-1"]), max_size=2))]
    return starts, chosen, ",".join(entries)


@given(lists_of_cards())
def test_what_is_named_is_seen_in_that_order(
    host: Host, drawn: tuple[list[str], list[int], str]
) -> None:
    starts, chosen, value = drawn
    host(*uuids(*starts))
    twice = len(set(chosen)) < len(chosen)
    assert seen(value) == ([] if twice else [str(at) for at in chosen])


@given(st.text("019-+, GMPUI\t.xaf", max_size=12) | st.text(max_size=6), distinct)
def test_no_value_upsets_it_or_shows_what_is_not_there(
    host: Host, value: str, starts: list[str]
) -> None:
    host(*uuids(*starts))
    found = cards.visible({VARIABLE: value})
    assert set(found) <= {
        replace(card, token=other.token) for card in cards.visible({}) for other in found
    }
    assert len({card.uuid for card in found}) == len(found) <= len(starts)


# slices


def sliced(number: int, *letters: str) -> dict[str, Any]:
    """Describe a card in MIG mode, whose slices have these letters for UUIDs and names."""
    parts = [
        {"uuid": f"MIG-{letter * 8}", "name": letter, "memory": 10 * GIB, "used": 0}
        for letter in letters
    ]
    return fake_card(number, str(number), mig=[None, *parts])


def test_slices_stand_for_their_card(host: Host) -> None:
    host(fake_card(0, "0"), sliced(1, "a", "b"), sliced(2), sliced(3, "c"))
    assert seen(None) == ["0", "a", "b", "c"]
    part = cards.visible({})[1]
    assert part == Card("MIG-aaaaaaaa", "MIG-aaaaaaaa", "a", 10 * GIB, 9.0)
    assert part.is_slice
    assert not cards.visible({})[0].is_slice


def test_what_is_not_known_of_a_slice_is_that_of_its_card_but_its_size(host: Host) -> None:
    parts = [{"uuid": None, "name": "lost"}, {"uuid": "MIG-a", "name": None, "memory": None}]
    host(fake_card(0, "whole", mig=parts))
    assert cards.visible({}) == [Card("MIG-a", "MIG-a", "whole", 0, 9.0)]


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("MIG-bbbbbbbb", "b"),
        ("MIG-cccccccc,MIG-aaaaaaaa", "ca"),
        ("MIG-bb", "b"),
        ("MIG-bbbbbbbb,MIG-dddddddd,MIG-aaaaaaaa", "b"),
        ("MIG-aaaaaaaa,MIG-aaaaaaaa", ""),
        ("GPU-aaaaaaaa", ""),
        ("1", "a"),
        ("0,1", "0a"),
        ("GPU-00000003", "c"),
        ("0,2,1", "0"),
    ],
)
def test_slices_by_uuid_and_by_the_card_they_are_of(value: str, names: str, host: Host) -> None:
    host(fake_card(0, "0"), sliced(1, "a", "b"), sliced(2), sliced(3, "c"))
    assert seen(value) == list(names)
    tokens = [card.token for card in cards.visible({VARIABLE: value})]
    assert tokens == value.split(",")[: len(tokens)]


# whether the order is certain


T4 = Card("1", "GPU-77", "Tesla T4", 15 * GIB, 7.5)
OTHER = Card("1", "GPU-66", *(H200.name, H200.memory, H200.capability))


def by_uuid(card: Card) -> Card:
    """Give a card that the variable names by its UUID."""
    return replace(card, token=card.uuid)


@pytest.mark.parametrize(
    ("found", "order", "certain"),
    [
        ([], None, True),
        ([T4], None, True),
        ([H200, OTHER], None, True),
        ([H200, T4], None, False),
        ([H200, T4], "FASTEST_FIRST", False),
        ([H200, T4], "PCI_BUS_ID", True),
        ([by_uuid(H200), by_uuid(T4)], None, True),
        ([by_uuid(H200), T4], None, False),
        ([H200, replace(T4, name="NVIDIA H200", capability=9.0)], None, False),
        ([replace(H200, uuid="MIG-1")], None, True),
        ([H200, replace(H200, uuid="MIG-1")], "PCI_BUS_ID", False),
    ],
)
def test_whether_cuda_counts_them_in_this_order(
    found: list[Card], order: str | None, certain: bool
) -> None:
    environ = {} if order is None else {"CUDA_DEVICE_ORDER": order}
    assert cards.certain(environ, found) is certain


# what they are


def test_a_card_in_words() -> None:
    assert H200.in_words() == "NVIDIA H200 (GPU-5d0c1111)"
    assert Card("0", "index-0", "", 0, 0.0).in_words() == "unknown card (index-0)"


def test_capability_survives_the_way_from_nvml(host: Host) -> None:
    for text, number in (("8.6", 8.6), ("7.5", 7.5), ("12.1", 12.1), ("9.0", 9.0)):
        host(fake_card(0, capability=text))
        assert cards.visible({})[0].capability == number


@pytest.mark.parametrize(
    ("part", "known"),
    [
        ("uuid", Card("1", "index-1", "NVIDIA H200", 10 * GIB, 9.0)),
        ("name", Card("1", "GPU-1", "", 10 * GIB, 9.0)),
        ("memory", Card("1", "GPU-1", "NVIDIA H200", 0, 9.0)),
        ("capability", Card("1", "GPU-1", "NVIDIA H200", 10 * GIB, 0.0)),
    ],
)
def test_what_is_known_of_a_card_is_told(part: str, known: Card, host: Host) -> None:
    host(fake_card(0, "0"), {**fake_card(1, gib=10, uuid="GPU-1"), part: None}, fake_card(2, "2"))
    first, card, last = cards.visible({})
    assert (first.name, card, last.name) == ("0", known, "2")


def test_a_card_that_is_lost_keeps_its_place(host: Host) -> None:
    host(fake_card(0, "0"), None, fake_card(2, "2"))
    assert seen(None) == ["0", "2"]
    assert seen("2,0") == ["2", "0"]
    assert seen("0,1,2") == ["0"]
    assert [card.token for card in cards.visible({})] == ["0", "2"]


def nothing_known() -> tuple[object, ...]:
    """Ask everything."""
    return cards.visible({}), cards.users("GPU-1"), cards.in_use("GPU-1"), cards.driver()


def test_a_library_that_can_t_be_opened(host: Host) -> None:
    host(fake_card(0), broken="Driver/library version mismatch")
    assert nothing_known() == ([], [], 0, "")
    assert cards.trouble() == (
        "NVIDIA's management library can't be used: Driver/library version mismatch"
    )


def test_a_module_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nothing_known() == ([], [], 0, "")
    assert cards.trouble().startswith("nvidia-ml-py can't be imported: ")


def test_the_library_itself_is_missing_or_works() -> None:
    """Ask the real one: either it says what is wrong, or what the driver is."""
    script = "from pytest_remotegpu import cards; print([cards.driver(), cards.trouble()])"
    command = [sys.executable, "-W", "error", "-c", script]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert re.fullmatch(
        r"\['[\d.]+', ''\]|\['', \"NVIDIA's management library can't be used: .+\"\]", said.strip()
    )


def test_driver_and_no_trouble(host: Host) -> None:
    host(driver="580.65.06")
    assert (cards.driver(), cards.trouble(), cards.visible({})) == ("580.65.06", "", [])


# who uses a card


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@contextlib.contextmanager
def dead_child() -> Iterator[int]:
    """Have a process that has ended, and that nobody has waited for."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    try:
        yield pid
    finally:
        os.waitpid(pid, 0)


@needs_proc
def test_users_that_live(host: Host) -> None:
    gone = 2**22 + 1  # more than the kernel gives out
    me = os.getpid()
    with dead_child() as dead:
        processes = [[me, 3 * GIB], [dead, GIB], [gone, GIB], [0, GIB], [1, None]]
        host(fake_card(0), fake_card(1, uuid="GPU-1", used=5 * GIB, processes=processes))
        assert cards.users("GPU-1") == [User(me, 3 * GIB), User(1, 0)]
    assert cards.in_use("GPU-1") == 5 * GIB


def test_users_of_a_slice(host: Host) -> None:
    part = {"uuid": "MIG-a", "name": "", "memory": 9, "used": 7, "processes": [[os.getpid(), 7]]}
    host(fake_card(0, mig=[part]))
    assert cards.users("MIG-a") == [User(os.getpid(), 7)]
    assert cards.in_use("MIG-a") == 7


@pytest.mark.parametrize(
    "card", [{"uuid": "GPU-2"}, {"uuid": "GPU-1", "processes": None, "used": None}]
)
def test_users_of_a_card_that_does_not_tell(card: dict[str, Any], host: Host) -> None:
    host({**fake_card(1, used=5, processes=[[os.getpid(), 1]]), **card})
    assert (cards.users("GPU-1"), cards.in_use("GPU-1")) == ([], 0)


# the stand-in, and processes


def test_a_process_can_be_given_cards(tmp_path: Path) -> None:
    path = tmp_path / "cards.json"
    cardfile.write_cards(path, [fake_card(1), fake_card(2)])
    script = (
        "import sys; from pytest_remotegpu import cards; assert 'pynvml' not in sys.modules; "
        "print([card.in_words() for card in cards.visible({'CUDA_VISIBLE_DEVICES': '1'})])"
    )
    said = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", script],
        env={**os.environ, **cardfile.environment(path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert said == "['NVIDIA H200 (GPU-00000002)']\n"


def real_pynvml() -> ModuleType:
    """Import the real module, whatever stands in for it at the moment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "pynvml", raising=False)
        patch.setattr(sys, "path", [path for path in sys.path if path != str(cardfile.STANDIN)])
        importlib.invalidate_caches()
        module = importlib.import_module("pynvml")
    assert module.__file__ is not None
    assert not Path(module.__file__).is_relative_to(cardfile.STANDIN)
    return module


def test_the_stand_in_has_what_is_used_and_no_more_than_the_real_one(host: Host) -> None:
    host()
    assert cards.trouble() == ""
    standin, real = sys.modules["pynvml"], real_pynvml()
    used = set(re.findall(r"nvml\.(nvml\w+|NVML\w+)", inspect.getsource(cards)))
    assert len(used) > 10
    assert used == {name for name in vars(standin) if name.lower().startswith("nvml")}
    assert issubclass(real.NVMLError, Exception)
    for name in sorted(used - {"NVMLError"}):
        if name.startswith("NVML_"):
            assert getattr(real, name) == getattr(standin, name), name
            continue
        taken = itertools.islice(inspect.signature(getattr(real, name)).parameters.values(), 9)
        needed = [one.name for one in taken if one.default is inspect.Parameter.empty]
        if "args" not in needed:  # some are wrapped and show nothing
            assert needed == list(inspect.signature(getattr(standin, name)).parameters), name
