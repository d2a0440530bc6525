"""Which of Modal's GPUs a test gets: what ``--remote=modal:...`` names, and what a mark asks for.

Values in, values out; knows the table of types, and neither the SDK nor pytest.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pytest_remotegpu import gpu
from pytest_remotegpu.backends.modal import table
from pytest_remotegpu.backends.modal.table import CardType
from pytest_remotegpu.errors import SpecError, UsageError
from pytest_remotegpu.gpu import Shape

__all__ = ["cards", "choose", "further", "larger", "parse", "run_of"]

RUN: Final = "PYTEST_REMOTEGPU_RUN"
"""The variable with the id of a run; what is made for that run alone gets it as a tag."""
FLASH: Final = 8.0
"""The capability that FlashAttention-2 needs: Ampere or newer."""
COUNTED: Final = re.compile(r"(\d+) ?[x*] ?([^\s*]+)|([^\s*]+?) ?[x*] ?(\d+)", re.IGNORECASE)
"""A count beside a type, as it is written elsewhere: before it, or behind it."""
WHATEVER: Final = {"any", "auto", "cheapest", "gpu", "*"}
"""Names for a card of any type, with other tools and with Modal once."""
LONGEST: Final = 80
"""Letters of what the user wrote that are shown."""
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
        what = "has a comma with no type beside it" if "," in rest else "names no type"
        raise SpecError(
            f"--remote=modal:{_shown(rest)} {what}; it reads"
            " modal:TYPE or modal:TYPE,TYPE, such as modal:H100,A100-80GB; with modal alone it is "
            "the cheapest that does (is a variable unset in the command?)"
        )
    found = table.find(name)
    if found is not None:
        return found
    option = f"--remote=modal:{_shown(rest)}"
    if (counted := _counted(name)) is not None:
        mark = f"gpu({counted[1]})"
        bare = ",".join((_counted(each.strip()) or (each.strip(),))[0] for each in rest.split(","))
        raise SpecError(
            f"{option} has a count; how many cards a test needs stands in its mark:"
            f" {mark}, and the option reads --remote=modal:{_shown(bare)}"
        )
    several = list(filter(None, re.split(r"[\s;/|+&]+", name)))
    if len(several) > 1 and all(map(table.find, several)):
        raise SpecError(
            f"{option} names {_short(name)!r}; several types, of which the first that is free is "
            f"taken, have commas between them: --remote=modal:{_shown(','.join(several))}"
        )
    raise SpecError(f"{option} names {_short(name)!r}, {_unknown(name)}")


def _counted(name: str) -> tuple[str, int] | None:
    """Read a type with a count, as others write it: ``H100:2``, ``2xH100``, ``H100*2``.

    :return: the type as it is written, and a number that a mark takes; ``None`` for anything else.
    """
    bare, colon, count = name.partition(":")
    match = COUNTED.fullmatch(name)
    if match:
        bare, count = match[2] or match[3], match[1] or match[4]
    card = table.find(bare)
    if card is None or not (match or colon):
        return None
    number = int(count[:9]) if count.isascii() and count.isdecimal() else 2
    return bare.strip(), number if 0 < number <= card.most else 2


def _shown(rest: str) -> str:
    """Give what the option holds as it can be shown in a line."""
    text = _short(rest)
    return text if text.isprintable() else repr(text)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _unknown(name: str) -> str:
    """Say what may have been meant by a name that is no type's, and which types there are."""
    if name.lower() in WHATEVER:
        return (
            "which is no GPU of Modal's; the cheapest that does for a test is had without a type: "
            "--remote=modal"
        )
    return f"which is no GPU of Modal's; {_alike(name)}"


def _alike(name: str) -> str:
    known = [*table.TYPES, *table.ALIASES]
    if bare := _marked(name):
        if f"{bare}!" in table.TYPES:
            return f"did you mean {bare}! or {bare}?"
        exact = " and ".join(each for each in table.TYPES if each.endswith("!"))
        return f"only {exact} has a !: did you mean {bare}?"
    asked = unicodedata.normalize("NFKC", _short(name)).partition(":")[0].upper()
    words = gpu.words(asked.replace("_", "-")) - MAKER
    named = [each for each in table.TYPES if gpu.words(each) <= words]
    cutoff = 0.5 if len(asked) <= 2 else 0.6  # noqa: PLR2004 -- half of a T4 is much, of a 4090 little
    alike = difflib.get_close_matches(asked, known, 3, cutoff)
    close = [*named[:1], *(each for each in alike if each not in named)][:3]
    hint = f"did you mean {' or '.join(close)}? There are" if close else "there are"
    return f"{hint}: {', '.join(sorted(known))}"


def check_prices(names: Iterable[str], backends: Callable[[], Iterable[str]]) -> None:
    """Look whether the user's prices are for something: a type of Modal's, or a backend.

    :param backends: gives the names of those that are installed; asked where that matters.
    :raises UsageError: for one that is for nothing, by which a run would cost what nobody meant.
    """
    for name in names:
        if ":" in name or table.find(name) is not None or name in backends():
            continue
        raise UsageError(
            f"remotegpu_prices has a price for {_short(name)!r}, which is neither a GPU of Modal's "
            f"nor a backend; {_alike(name)}; for the cards of another backend its name stands "
            "there, as in ssh:gpubox = 1.20"
        )


def _marked(name: str) -> str:
    """Give the name of the type that stands before ``!``; empty where none does."""
    card = table.find(name.rstrip("! ")) if name.rstrip().endswith("!") else None
    return "" if card is None else card.name


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


def larger(named: tuple[CardType, ...], shape: Shape, names: Sequence[str], gib: float) -> Shape:
    """Give the shape of tests that have lacked memory on any of the types that they might have.

    What the option names does not stand in the way; what the mark names does.

    :param named: as :func:`parse` gives them.
    :param names: types, of which it is to be one; the cheapest that does where there are none.
    :param gib: what each card must have besides.
    :raises UsageError: where no type does.
    """
    most = max((card.memory_gib for card in choose(named, shape)), default=0.0)
    wish = replace(shape, type=(), min_memory_gib=max(gib, math.nextafter(most, math.inf)))
    marked = [card for name in shape.type for card in _meant(name)]
    found = []
    for types in map(_called, names) if names else [_cheapest_first()]:
        fitting = [card for card in types if not lacks(card, wish)]
        found += [card for card in fitting if not marked or card in marked][:1]
    if not found:
        of_mark = f" and is what the mark asks for, {' or '.join(shape.type)}" if marked else ""
        what = " or ".join(names) or "type of Modal's"
        least = f"more than {most:g}" if gib <= most else f"{gib:g}"
        raise UsageError(f"no {what} has {least} GiB{of_mark}")
    enough = min(card.memory_gib for card in found)
    # never quite the number of a mark: these tests have workers of their own
    memory = math.nextafter(enough, 0.0)
    kinds = tuple(dict.fromkeys(card.name for card in found))
    return replace(shape, type=kinds, min_memory_gib=memory)


def _called(name: str) -> list[CardType]:
    """Give the types of a name that no mark has."""
    try:
        return _meant(name)
    except UsageError:
        raise UsageError(f"{name!r} names a card, {_unknown(name)}") from None


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
