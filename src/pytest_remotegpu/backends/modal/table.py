"""Modal's GPU types in one dated table: memory, capability, largest count, price.

Pure data and look-ups; must not know the SDK, nor how a specification is written. The prices are
those of the card alone: Modal bills CPU cores and memory of the container on top.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from pytest_remotegpu.backends.base import OWN, Price

__all__ = [
    "ALIASES",
    "DATE",
    "SOURCE",
    "TYPES",
    "CardType",
    "Listed",
    "find",
    "price",
    "usd_per_hour",
]

DATE: Final = "2026-05-25"
"""When the prices were read."""
SOURCE: Final = (
    "https://modal.com/pricing, as quoted by "
    "https://github.com/api-evangelist/modal-com/blob/10fea1887edfe1034493b27af876e25309fbad66/"
    "plans/modal-plans-pricing.yml"
)
"""Where the prices stand; names and counts are those of https://modal.com/docs/guide/gpu."""


@dataclass(frozen=True)
class CardType:
    """One type of GPU.

    :ivar name: as Modal spells it.
    :ivar memory_gib: what the maker gives as its memory; what a program can have is a little less.
    :ivar capability: its compute capability, such as 8.0.
    :ivar most: how many one container may have.
    :ivar usd_per_second: for one card; ``None`` where no price is known.
    """

    name: str
    memory_gib: float
    capability: float
    most: int
    usd_per_second: float | None


# `H100!` is an H100 and never a better card; `B200+` is a B200 or a better one at its price.
_ROWS: Final = (
    CardType("T4", 16, 7.5, 8, 0.000164),
    CardType("L4", 24, 8.9, 8, 0.000222),
    CardType("A10", 24, 8.6, 4, 0.000306),
    CardType("L40S", 48, 8.9, 8, 0.000542),
    CardType("A100-40GB", 40, 8.0, 8, 0.000583),
    CardType("A100-80GB", 80, 8.0, 8, 0.000694),
    CardType("RTX-PRO-6000", 96, 12.0, 8, 0.000842),
    CardType("H100", 80, 9.0, 8, 0.001097),
    CardType("H100!", 80, 9.0, 8, 0.001097),
    CardType("H200", 141, 9.0, 8, 0.001261),
    CardType("B200", 180, 10.0, 8, 0.001736),
    CardType("B200+", 180, 10.0, 8, 0.001736),
)

TYPES: Final[Mapping[str, CardType]] = MappingProxyType({row.name: row for row in _ROWS})
"""The types by their name."""
ALIASES: Final[Mapping[str, str]] = MappingProxyType({"A10G": "A10", "A100": "A100-40GB"})
"""Other names of a type."""


class Listed(Protocol):
    """Prices of another source than the table: USD for one card and an hour, by a type's name."""

    @property
    def usd(self) -> Mapping[str, float]: ...  # noqa: D102 -- described above
    @property
    def date(self) -> str: ...  # noqa: D102 -- of these prices
    @property
    def source(self) -> str: ...  # noqa: D102 -- where they stand


def find(name: str) -> CardType | None:
    """Give the type of that name or alias, in whatever case; ``None`` where there is none.

    >>> [find(name).name for name in ("t4", "a10g", "A100", "H100!")]
    ['T4', 'A10', 'A100-40GB', 'H100!']
    >>> find("H1000") is None
    True
    """
    upper = name.strip().upper()
    return TYPES.get(ALIASES.get(upper, upper))


def usd_per_hour(name: str, count: int = 1) -> float | None:
    """Give the price of so many cards of a type; ``None`` where it is not known.

    >>> round(usd_per_hour("H100", 2), 4), usd_per_hour("V100")
    (7.8984, None)
    """
    row = find(name)
    if row is None or row.usd_per_second is None:
        return None
    return row.usd_per_second * 3600 * count


def price(
    names: Iterable[str],
    count: int,
    own: Mapping[str, float],
    listed: Listed | None = None,
) -> Price | None:
    """Give the price of a worker that gets so many cards of any of these types: of the dearest.

    :param own: what the user says, USD for one card and an hour, by type or alias; it stands above
        all others.
    :param listed: what the workspace pays; it stands above the table.
    :return: ``None`` where the price of one of them is not known.
    """
    said = {row.name: usd for name, usd in own.items() if (row := find(name)) is not None}
    found = [_one(name, said, listed) for name in names]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        return None
    usd, date, source = max(known)
    return Price(usd * count, date, source)


def _one(
    name: str, said: Mapping[str, float], listed: Listed | None
) -> tuple[float, str, str] | None:
    """Give the price of one card with its date and source."""
    row = find(name)
    if row is not None and row.name in said:
        return said[row.name], "", OWN
    if row is not None and listed is not None and row.name in listed.usd:
        return listed.usd[row.name], listed.date, listed.source
    usd = usd_per_hour(name)
    return None if usd is None else (usd, DATE, SOURCE)
