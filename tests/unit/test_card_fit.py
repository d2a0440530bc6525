"""Whether a card does for a mark: its type, its memory, its capability.

Values only: no card and no library is asked.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_remotegpu import cards
from pytest_remotegpu.cards import Card
from pytest_remotegpu.gpu import Shape

GIB = 2**30
H200 = Card("0", "GPU-5d0c1111-2222-3333-4444-555566667777", "NVIDIA H200", 141 * GIB, 9.0)


@pytest.mark.parametrize(
    ("type", "name", "fits"),
    [
        ("A100", "NVIDIA A100-SXM4-40GB", True),
        ("a100", "NVIDIA A100-SXM4-40GB", True),
        ("A100-40GB", "NVIDIA A100-SXM4-40GB", True),
        ("A100 40GB", "NVIDIA A100-PCIE-40GB", True),
        ("A100-80GB", "NVIDIA A100 80GB PCIe", True),
        ("A100-80GB", "NVIDIA A100-SXM4-40GB", False),
        ("H100!", "NVIDIA H100 80GB HBM3", True),
        ("H100!", "NVIDIA H200", False),
        ("L4", "NVIDIA L4", True),
        ("L4", "NVIDIA L40S", False),
        ("L40S", "NVIDIA L40S", True),
        ("A10", "NVIDIA A100-SXM4-40GB", False),
        ("T4", "Tesla T4", True),
        ("RTX 4090", "NVIDIA GeForce RTX 4090", True),
        ("RTX-4090", "NVIDIA GeForce RTX 4090", True),
        ("4090 rtx", "NVIDIA GeForce RTX 4090", True),
        ("RTX 4090", "NVIDIA GeForce RTX 4080", False),
        ("RTX 4090", "NVIDIA GeForce RTX", False),
        ("RTX-PRO-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", True),
        ("H200", "", False),
    ],
)
def test_type(type: str, name: str, fits: bool) -> None:
    said = cards.misfit(replace(H200, name=name), Shape(1, (type,)))
    assert said == ("" if fits else f"{name or 'unknown card'} is not {type}")


def test_any_of_several_types_does() -> None:
    assert cards.misfit(H200, Shape(1, ("A100", "H200"))) == ""
    assert cards.misfit(H200, Shape(1, ("A100", "B200"))) == "NVIDIA H200 is not A100 or B200"


word = st.text("abgl0145", min_size=1, max_size=4)


@given(st.lists(word, min_size=1, max_size=4), st.data())
def test_words_of_a_type_are_words_of_the_name(parts: list[str], data: st.DataObject) -> None:
    name = parts[0].upper() + "".join(
        data.draw(st.sampled_from([" ", "-", "  "])) + part for part in parts[1:]
    )
    some = data.draw(st.lists(st.sampled_from(parts), min_size=1))
    card = replace(H200, name=name)
    wanted = data.draw(st.sampled_from("- ")).join(some)
    assert cards.misfit(card, Shape(1, (wanted.upper(),))) == ""
    foreign = data.draw(word)
    assume(foreign not in parts)
    assert cards.misfit(card, Shape(1, (f"{wanted}-{foreign}",))) != ""


MARKETED = {
    # MiB that NVML reports: GiB on the box
    15109: 16,  # T4 with an old driver
    15360: 16,  # T4
    23028: 24,  # A10
    23034: 24,  # L4
    24564: 24,  # RTX 4090
    40536: 40,  # A100
    46068: 48,  # L40S
    81559: 80,  # H100
    97887: 96,  # RTX PRO 6000
    143771: 141,  # H200
    183359: 192,  # B200
}


@pytest.mark.parametrize(("mib", "gib"), MARKETED.items())
def test_memory_as_it_is_printed_on_the_box(mib: int, gib: int) -> None:
    card = replace(H200, memory=mib * 2**20)
    assert cards.misfit(card, Shape(1, min_memory_gib=gib)) == ""
    more = min([size for size in MARKETED.values() if size > gib], default=200)
    said = cards.misfit(card, Shape(1, min_memory_gib=more))
    assert said == f"NVIDIA H200 has {mib / 1024:.1f} GiB, not {more} GiB"


@given(st.integers(0, 300 * GIB), st.floats(0, 300), st.floats(0, 1))
def test_memory_is_never_a_sixteenth_and_a_gib_too_little(
    memory: int, wanted: float, part: float
) -> None:
    card = replace(H200, memory=memory)
    fits = not cards.misfit(card, Shape(1, min_memory_gib=wanted))
    if memory >= wanted * GIB:
        assert fits
    if memory + GIB <= wanted * GIB * 15 / 16:
        assert not fits
    if fits:  # then less will do as well
        assert not cards.misfit(card, Shape(1, min_memory_gib=wanted * part))


@pytest.mark.parametrize(
    ("has", "wanted", "fits"),
    [
        (9.0, 8.0, True),
        (9.0, 9.0, True),
        (8.9, 9.0, False),
        (12.0, 9.0, True),
        (7.5, 8.0, False),
        (8.6, 8.6, True),
        (10.3, 9.0, True),
    ],
)
def test_capability(has: float, wanted: float, fits: bool) -> None:
    said = cards.misfit(replace(H200, capability=has), Shape(1, min_capability=wanted))
    assert said == ("" if fits else f"NVIDIA H200 has compute capability {has}, not {wanted}")


def test_what_is_not_known_does_not_do() -> None:
    blank = Card("0", "index-0", "", 0, 0.0)
    assert cards.misfit(blank, Shape(2)) == ""
    said = [
        cards.misfit(blank, Shape(1, min_memory_gib=1)),
        cards.misfit(blank, Shape(1, min_capability=8.0)),
    ]
    assert said == [
        "unknown card has an unknown amount of memory, not 1 GiB",
        "unknown card has an unknown capability, not 8.0",
    ]


def test_variables_are_no_matter_of_cards() -> None:
    assert cards.misfit(H200, Shape(1, env=(("A", "1"),))) == ""


def test_a_process_sees_one_slice_only() -> None:
    part = replace(H200, uuid="MIG-aaaaaaaa", name="NVIDIA H200 MIG 1g.18gb", memory=18 * GIB)
    assert cards.misfit(part, Shape(1)) == ""
    assert "a process sees one slice only" in cards.misfit(part, Shape(2))
