"""Which of Modal's GPUs a test gets: what ``--remote=modal:...`` names, and what a mark asks for.

Values in, values out; knows the table of types, and neither the SDK nor pytest.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from pytest_remotegpu import gpu
from pytest_remotegpu.backends.modal import table
from pytest_remotegpu.backends.modal.table import CardType
from pytest_remotegpu.errors import SpecError, UsageError
from pytest_remotegpu.gpu import Shape

__all__ = ["cards", "choose", "further", "parse", "run_of"]

RUN: Final = "PYTEST_REMOTEGPU_RUN"
"""The variable with the id of a run; what is made for that run alone gets it as a tag."""
FLASH: Final = 8.0
"""The capability that FlashAttention-2 needs: Ampere or newer."""
MAKER: Final = {"nvidia", "tesla"}
"""Words in the names that drivers give to cards, and not in those of types."""


def run_of(variables: Mapping[str, str]) -> str:
    """Read the id of the run; empty where it has none.

    :param variables: of the environment. :raises UsageError: where it can't be a tag.
    """
    run = variables.get(RUN, "")
    if not re.fullmatch(r"[A-Za-z0-9._-]{0,63}", run):
        raise UsageError(
            f"{RUN}={run!r} can't be a tag at Modal; give 1 to 63 of: letters, digits, . _ -"
        )
    return run


def parse(rest: str) -> tuple[CardType, ...]:
    """Read ``TYPE`` or ``TYPE,TYPE``, where the first that is free is taken.

    :param rest: what stands after ``modal:``; empty for the cheapest that does.
    :raises SpecError: for a type that there is not, with those that look like it; for a count.
    """
    names = rest.split(",") if rest else []
    return tuple(dict.fromkeys(_known(name, rest) for name in names))


def _known(name: str, rest: str) -> CardType:
    name = name.strip()
    if not name:
        raise SpecError(
            f"--remote=modal:{rest} has a comma with no type beside it; it reads"
            " modal:TYPE or modal:TYPE,TYPE, such as modal:H100,A100-80GB"
        )
    bare, colon, count = name.partition(":")
    if colon:
        number = count if count.isascii() and count.isdigit() else "2"
        raise SpecError(
            f"--remote=modal:{rest} has a count; how many cards a test needs stands in its mark:"
            f" gpu({number}), and the option reads --remote=modal:{bare or 'A100'}"
        )
    found = table.find(name)
    if found is not None:
        return found
    raise SpecError(f"--remote=modal:{rest} names {name!r}, {_unknown(name)}")


def _unknown(name: str) -> str:
    known = [*table.TYPES, *table.ALIASES]
    close = difflib.get_close_matches(name.upper(), known, 3, 0.5)
    hint = f"did you mean {' or '.join(close)}? There are" if close else "there are"
    return f"which is no GPU of Modal's; {hint}: {', '.join(sorted(known))}"


def choose(named: tuple[CardType, ...], shape: Shape) -> tuple[CardType, ...]:
    """Give the types of which the tests of a shape may have any, in the order of preference.

    What a mark names stands above the option: for each of its names those types of the option that
    it fits, else the cheapest one that it fits and that does. The option's come first. Where
    neither names any, it is the cheapest that does.

    :param named: as :func:`parse` gives them.
    :raises UsageError: where no type does, with what each lacks and what would do.
    """
    if not shape.count:
        return ()
    if shape.type:
        return _of_mark(named, shape)
    fitting = [card for card in named or _cheapest_first() if not lacks(card, shape)]
    if not fitting:
        raise _refusal(named, shape)
    return tuple(fitting if named else fitting[:1])


def _of_mark(named: tuple[CardType, ...], shape: Shape) -> tuple[CardType, ...]:
    meant = [_meant(name) for name in shape.type]
    preferred: list[CardType] = []
    others: list[CardType] = []
    for types in meant:
        fitting = [card for card in types if not lacks(card, shape)]
        of_option = [card for card in named if card in fitting]
        preferred += of_option
        others += [] if of_option else fitting[:1]
    if not preferred and not others:
        raise _refusal((card for types in meant for card in types), shape)
    return tuple(dict.fromkeys(preferred + others))


def _meant(name: str) -> list[CardType]:
    """Give the types that a mark's name means, the cheapest first.

    They are those that have each word of it in their name. The service's alias of another type is
    one of these; a name that ends in ``!`` is that very type.

    :raises UsageError: where it means none.
    """
    exact = table.find(name)
    asked = gpu.words(name) - MAKER
    if exact is not None and exact.name.endswith("!"):
        return [exact]
    found = [card for card in _cheapest_first() if asked and asked <= gpu.words(card.name)]
    if exact is not None and exact not in found:
        found.append(exact)
    # a name of another kind, such as NVIDIA A100-SXM4-80GB
    found = found or [card for card in _cheapest_first() if gpu.words(card.name) <= asked]
    if not found:
        raise UsageError(f"gpu(type={name!r}) names a card, {_unknown(name)}")
    return found


def _cheapest_first() -> list[CardType]:
    return sorted(table.TYPES.values(), key=lambda card: card.usd_per_second or float("inf"))


def lacks(card: CardType, shape: Shape) -> str:
    """Say in words what a type lacks for a shape; empty where it lacks nothing."""
    if shape.count > card.most:
        return f"has at most {card.most} in one container"
    if shape.min_memory_gib > card.memory_gib:
        return f"has {card.memory_gib:g} GiB"
    if shape.min_capability > card.capability:
        old = " (FlashAttention-2 needs 8.0)" if card.capability < FLASH else ""
        return f"has capability {card.capability:.1f}{old}"
    return ""


def _refusal(wanted: Iterable[CardType], shape: Shape) -> UsageError:
    """Say what each type lacks, and what would do: in the mark, where that has named them."""
    texts = [f"{card.name} {lacks(card, shape)}" for card in dict.fromkeys(wanted)]
    fitting = [card for card in _cheapest_first() if not lacks(card, shape)]
    way = "no type of Modal's does"
    if fitting:
        first = fitting[0].name
        more = f", or {', '.join(card.name for card in fitting[1:4])}" if fitting[1:] else ""
        way = f"what does: {_mark(shape, first) if shape.type else f'--remote=modal:{first}'}{more}"
    return UsageError(f"{shape} asked for, and {'; '.join(texts or ['no type has that'])}; {way}")


def _mark(shape: Shape, types: str | list[str]) -> str:
    """Write a mark that names these types."""
    count = f"{shape.count}, " if shape.count > 1 else ""
    return f"gpu({count}type={json.dumps(types)})"


def cards(types: Iterable[CardType], count: int) -> str:
    """Write types as Modal reads them: ``H100:2``, several with commas; empty for none."""
    return ",".join(card.name + (f":{count}" if count > 1 else "") for card in types)


def further(types: Iterable[CardType], shape: Shape) -> str:
    """Say how to let tests of a shape have one more type, the cheapest; empty where none does.

    :param types: those that they may have, in the order of preference.
    """
    names = [card.name for card in types]
    bare = {name.rstrip("!+") for name in names}
    more = [
        card
        for card in table.TYPES.values()
        if card.name.rstrip("!+") not in bare and not lacks(card, shape)
    ]
    if not shape.count or not more:
        return ""
    names.append(min(more, key=lambda card: card.usd_per_second or float("inf")).name)
    if shape.type:  # which stands above the option
        return f"name further cards in the mark, such as {_mark(shape, names)}"
    return f"name further cards, such as --remote=modal:{','.join(names)}"
