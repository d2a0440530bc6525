"""What a far side's interpreter has installed: an event of its own, beside those of ``events``.

Names only, and the facts that markers of requirements ask for; none of it is ever imported.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

__all__ = ["MOST", "Has"]

MOST: Final = 20_000
"""Names of one kind."""
_Names = Annotated[list[str], msgspec.Meta(max_length=MOST)]


class Has(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=32):
    """What can be had there; told where something has failed for want of a module.

    :ivar projects: the names of what is installed, as their metadata's files are named.
    :ivar modules: the names of what can be imported, outermost ones only.
    :ivar environment: what markers see, by their names for it.
    """

    projects: _Names
    modules: _Names
    environment: Annotated[dict[str, str], msgspec.Meta(max_length=20)]
