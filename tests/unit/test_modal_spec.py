"""Which of Modal's GPUs a test gets."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu.backends.modal import spec, table
from pytest_remotegpu.errors import SpecError, UsageError
from pytest_remotegpu.gpu import Shape, words

NAMES = [*table.TYPES, *table.ALIASES]


def chosen(rest: str, shape: Shape) -> str:
    return spec.cards(spec.choose(spec.parse(rest), shape), shape.count)


@pytest.mark.parametrize(
    ("rest", "shape", "cards"),
    [
        ("T4", Shape(), "T4"),
        ("a100", Shape(), "A100-40GB"),
        ("A100-80GB", Shape(2), "A100-80GB:2"),
        ("H100!", Shape(), "H100!"),
        ("H100, A100-80GB", Shape(2), "H100:2,A100-80GB:2"),
        ("T4", Shape(0), ""),
        ("", Shape(), "T4"),
        ("", Shape(min_memory_gib=60), "A100-80GB"),
        ("T4,L4", Shape(min_capability=8.0), "L4"),
        ("T4", Shape(type=("H100",)), "H100"),
        ("T4", Shape(type=("NVIDIA A100-SXM4-80GB",)), "A100-80GB"),
        ("T4", Shape(type=("L4", "A10G")), "L4,A10"),
        ("", Shape(type=("A100",)), "A100-40GB"),
        ("T4", Shape(type=("a100",), min_memory_gib=60), "A100-80GB"),
        ("A100", Shape(type=("A100",), min_memory_gib=60), "A100-80GB"),
        ("A100-80GB", Shape(2, type=("A100",)), "A100-80GB:2"),
        ("H100,A100-80GB,A100", Shape(type=("A100",)), "A100-80GB,A100-40GB"),
        ("H100", Shape(type=("A100", "H100")), "H100,A100-40GB"),
        ("H100!", Shape(type=("H100",)), "H100!"),
        ("H100", Shape(type=("H100!",)), "H100!"),
        ("B200+", Shape(type=("B200",)), "B200"),
        ("T4", Shape(type=("NVIDIA A100",)), "A100-40GB"),
        ("T4", Shape(type=("Tesla T4",)), "T4"),
        ("T4", Shape(type=("NVIDIA H100 80GB HBM3",)), "H100"),
        ("T4", Shape(type=("RTX PRO 6000",)), "RTX-PRO-6000"),
        ("T4", Shape(type=("T4", "L4"), min_capability=8.0), "L4"),
    ],
)
def test_what_a_test_gets(rest: str, shape: Shape, cards: str) -> None:
    assert chosen(rest, shape) == cards


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("A100-80", "did you mean A100-80GB"),
        ("H1000", "did you mean H100"),
        ("T4,V100", "'V100', which is no GPU of Modal's"),
        ("T4,", "a comma with no type beside it; it reads modal:TYPE"),
        (",", "a comma with no type beside it; it reads modal:TYPE"),
        (" ", "modal:  names no type; .*is a variable unset"),
        ("H100:2,L4", r"mark: gpu\(2\), and the option reads --remote=modal:H100,L4$"),
        ("L4,A10:8", r"mark: gpu\(2\), and the option reads --remote=modal:L4,A10$"),
        ("T4:0", r"mark: gpu\(2\), and the option reads --remote=modal:T4$"),
        ("T4:", r"mark: gpu\(2\), and the option reads --remote=modal:T4$"),
        ("T4:99999999999999999999", r"mark: gpu\(2\), and the option reads --remote=modal:T4$"),
        ("4xT4", r"mark: gpu\(4\), and the option reads --remote=modal:T4$"),
        ("t4 X 8", r"mark: gpu\(8\), and the option reads --remote=modal:t4$"),
        ("A100-80GB*2", r"mark: gpu\(2\), and the option reads --remote=modal:A100-80GB$"),
        ("T5:2", "names 'T5:2', which is no GPU of Modal's; did you mean T4"),
        ("http://x", "names 'http://x', which is no GPU of Modal's; there are"),
        ("T4;L4", "'T4;L4'; several types.* have commas between them: --remote=modal:T4,L4$"),
        ("T4 L4,A10", "'T4 L4'; several types.* commas between them: --remote=modal:T4,L4$"),
        ("h100!/A100", "have commas between them: --remote=modal:h100!,A100$"),
        ("A100 80GB", r"did you mean A100-80GB (or|\?)"),
        ("A100_80GB", r"did you mean A100-80GB (or|\?)"),
        ("H100-80GB", "did you mean H100 or"),
        ("NVIDIA A100-SXM4-80GB", "did you mean A100-80GB"),
        ("RTX6000", r"did you mean RTX-PRO-6000\?"),
        ("\uff344", "did you mean T4 or L4"),
        ("\u21ac", "no GPU of Modal's; there are: A10, "),
        ("4090", "no GPU of Modal's; there are: A10, "),
        ("H100!!", r"names 'H100!!', which is no GPU of Modal's; did you mean H100! or H100\?$"),
        ("h100 !", r"did you mean H100! or H100\?$"),
        ("A100-80gb!", r"only H100! has a !: did you mean A100-80GB\?$"),
        ("T4,a10g!!", r"'a10g!!', .*; only H100! has a !: did you mean A10\?$"),
        ("H1000!", "did you mean H100"),
        ("!", "no GPU of Modal's; there are: A10, "),
        ("any", "is had without a type: --remote=modal$"),
        ("T4\nX", r"^--remote=modal:'T4\\nX' names 'T4\\nX'"),
        ("A100:x", re.escape("gpu(2), and the option reads --remote=modal:A100")),
        ("A100:2", re.escape("gpu(2), and the option reads --remote=modal:A100")),
    ],
)
def test_what_it_can_not_name(rest: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        spec.parse(rest)


def test_long_names_are_cut() -> None:
    """A thousand types are as good as one, and the message on one that is none stays a line."""
    assert len(spec.parse(",".join(["T4", "l4"] * 500))) == 2
    with pytest.raises(SpecError) as caught:
        spec.parse(",".join(["T4"] * 1000 + ["X" * 5000]))
    assert len(str(caught.value)) < 500
    assert "XXX...', which is no GPU of Modal's" in str(caught.value)


@given(st.text(max_size=40))
def test_whatever_is_written_is_read_or_refused_in_one_line(rest: str) -> None:
    found: tuple[table.CardType, ...] = ()
    refusal = ""
    try:
        found = spec.parse(rest)
    except SpecError as error:
        refusal = str(error)
    assert refusal.isprintable()
    assert all(card in table.TYPES.values() for card in found)
    assert bool(found) == (bool(rest) and not refusal)


@pytest.mark.parametrize(
    ("rest", "shape", "words"),
    [
        ("A10", Shape(8), "A10 has at most 4 in one container; what does: --remote=modal:T4"),
        ("T4", Shape(9), "no type of Modal's does"),
        ("A100", Shape(min_memory_gib=60), "A100-40GB has 40 GiB; .*--remote=modal:A100-80GB"),
        ("T4", Shape(min_capability=8.0), "T4 has capability 7.5 .FlashAttention-2 needs 8.0.*A10"),
        ("T4", Shape(type=("V100",)), "type='V100'.* names a card, which is no GPU of Modal's"),
        ("T4", Shape(type=("NVIDIA",)), "type='NVIDIA'.* names a card, which is no GPU of Modal's"),
        ("T4", Shape(type=("T4",), min_capability=8.0), r'8\.0.*does: gpu\(type="L4"\), or A10,'),
        (
            "L4",
            Shape(2, type=("A100",), min_memory_gib=90),
            r"A100-40GB has 40 GiB; A100-80GB has 80 .*: gpu\(2, type=.RTX-PRO-6000.\), or H200",
        ),
    ],
)
def test_what_no_card_does(rest: str, shape: Shape, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        chosen(rest, shape)


@given(
    st.lists(st.sampled_from(NAMES), max_size=3),
    st.integers(0, 10),
    st.floats(0, 200),
    st.sampled_from([0.0, 7.5, 8.0, 9.0, 12.0, 13.0]),
)
def test_what_is_given_has_what_was_asked_for(
    names: list[str], count: int, memory: float, capability: float
) -> None:
    shape = Shape(count, min_memory_gib=memory, min_capability=capability)
    named = spec.parse(",".join(names))
    if not any(not spec.lacks(card, shape) for card in named or table.TYPES.values()) and count:
        with pytest.raises(UsageError):
            spec.choose(named, shape)
        return
    found = spec.choose(named, shape)
    assert all(not spec.lacks(card, shape) for card in found)
    assert bool(found) == bool(count)
    assert not named or set(found) <= set(named)


def is_of(card: table.CardType, name: str) -> bool:
    """Say whether a type is what a mark's name means, as the page on marks has it."""
    return card == table.find(name) or words(name) <= words(card.name)


@given(
    st.lists(st.sampled_from(NAMES), max_size=3),
    st.lists(st.sampled_from([*NAMES, "80GB", "RTX 6000", "nvidia a100"]), min_size=1, max_size=3),
    st.integers(1, 9),
    st.sampled_from([0.0, 24.0, 60.0, 100.0]),
    st.sampled_from([0.0, 8.0, 9.0]),
)
def test_what_a_mark_names_stands_above_the_option(
    names: list[str], marked: list[str], count: int, memory: float, capability: float
) -> None:
    shape = Shape(count, tuple(marked), memory, capability)
    named = spec.parse(",".join(names))
    plain = [name.removeprefix("nvidia ") for name in marked]
    fitting = [card for card in table.TYPES.values() if not spec.lacks(card, shape)]
    meant = [[card for card in fitting if is_of(card, name)] for name in plain]
    if not any(meant):
        with pytest.raises(UsageError, match=r"no type of Modal's does|what does: gpu"):
            spec.choose(named, shape)
        return
    found = spec.choose(named, shape)
    assert all(card in fitting and any(is_of(card, name) for name in plain) for card in found)
    assert all(set(types) & set(found) for types in meant if types)
    exact = {table.find(name) for name in plain if name.endswith("!")}
    of_option = [card for card in named if any(card in types for types in meant)]
    if not exact:
        assert set(found[: len(of_option)]) == set(of_option)
    further = spec.further(found, shape)
    if further:
        more = tuple(json.loads(further[further.index("[") : -1]))
        assert set(spec.choose(named, replace(shape, type=more))) > set(found)


def test_the_cheapest_of_those_that_a_mark_means() -> None:
    """It has what is asked for, whatever the option names beside it."""
    for named in ("", "T4", "A100", "H200,T4"):
        assert chosen(named, Shape(type=("A100",), min_memory_gib=60)) == "A100-80GB"


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_known_in_any_case(name: str) -> None:
    assert spec.parse(name.lower()) == spec.parse(name)
    assert len(spec.parse(f"{name},{name}")) == 1


@pytest.mark.parametrize(
    ("rest", "shape", "words"),
    [
        ("T4", Shape(1), "such as --remote=modal:T4,L4"),
        ("L4", Shape(1), "such as --remote=modal:L4,T4"),
        ("H100", Shape(2), "such as --remote=modal:H100,T4"),
        ("H100!", Shape(2, min_memory_gib=70), "such as --remote=modal:H100!,A100-80GB"),
        ("", Shape(1), "such as --remote=modal:T4,L4"),
        ("T4", Shape(1, type=("H100",)), 'in the mark, such as gpu(type=["H100", "T4"])'),
        ("T4", Shape(8, type=("H100",)), 'in the mark, such as gpu(8, type=["H100", "T4"])'),
        ("B200", Shape(1, min_memory_gib=170), ""),
        ("T4", Shape(0), ""),
    ],
)
def test_how_to_have_one_more_type(rest: str, shape: Shape, words: str) -> None:
    """What it says can be typed, and does what it says."""
    found = spec.further(spec.choose(spec.parse(rest), shape), shape)
    assert found.endswith(words)
    assert bool(found) == bool(words)
    if "--remote=modal:" in found:
        named = spec.parse(found.partition("modal:")[2])
        assert len(spec.choose(named, shape)) == len(spec.choose(spec.parse(rest), shape)) + 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("T99", "which is neither a GPU of Modal's nor a backend; there are: A10, A100, "),
        ("H10", "did you mean H100"),
        ("a100-80", "did you mean A100-80GB"),
        ("h100!!", "nor a backend; did you mean H100! or H100?; for"),
        ("sssh", "nor a backend"),
        ("Modal", "nor a backend"),
        ("x" * 500, "xxx..."),
    ],
)
def test_prices_that_are_for_nothing(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        spec.check_prices(["T4", name], lambda: ["modal", "ssh"])
    assert f"has a price for {name[:8]!r}"[:-1] in str(caught.value)
    assert len(str(caught.value)) < 500


def test_prices_that_are_for_something() -> None:
    """What has a colon is a backend, installed here or not: a project's file serves many hosts."""

    def names() -> list[str]:
        asked.append(True)
        return ["modal", "ssh"]

    asked: list[bool] = []
    spec.check_prices([*table.TYPES, *table.ALIASES, "t4", "modal:T4", "other:box"], names)
    assert not asked  # which reads a file for each package that is installed
    spec.check_prices(["ssh", "modal"], names)
