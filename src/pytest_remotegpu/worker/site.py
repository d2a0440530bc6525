"""What a supervisor knows of its host, and makes of an order for the runner there.

Values in, values out, apart from the look at the host; knows no process and no channel.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

import msgspec

from pytest_remotegpu import cards
from pytest_remotegpu.leftovers import sweep
from pytest_remotegpu.protocol import orders
from pytest_remotegpu.protocol.hello import Hello
from pytest_remotegpu.worker import versions

__all__ = ["chosen", "for_runner", "hello", "look", "prepare", "sweep"]

PYTHONPATH: Final = "PYTHONPATH"
PRETEND: Final = "PYTEST_REMOTEGPU_PRETEND_GPUS"


def prepare() -> None:
    """Import and read what :func:`look` and :func:`hello` need, for forks of this process.

    No card is asked for: that is for each fork to do.
    """
    cards.prepare()
    versions.packages()
    Hello.here()


def look() -> tuple[int | None, list[cards.Card]]:
    """Give the number of pretend cards, if any are, and the cards that are there."""
    pretend = os.environ.pop(PRETEND, "")
    if pretend.isascii() and pretend.isdecimal():
        return int(pretend), []
    return None, cards.visible(os.environ)


def hello(pretend: int | None, found: list[cards.Card]) -> Hello:
    """Say what this side is.

    :param pretend: as :func:`look` gives it. :param found: likewise.
    """
    gpus = tuple(card.token for card in found)
    extra = versions.found()
    return Hello.here(gpus=gpus, pretend=pretend, host=socket.gethostname(), extra=extra)


def for_runner(
    order: orders.Order, run: orders.Run, site: orders.Site, root: str, further: dict[str, str]
) -> orders.Order:
    """Make the order that a runner gets: paths as they are here, and no tree.

    :param run: the stretch to begin with. :param root: the project's folder here.
    :param further: the folders of further trees here, by those on the user's side.
    """
    given = order.options
    places = sorted([(order.root, root), *further.items()], key=lambda pair: -len(pair[0]))
    moved = {
        name: [_moved_all(text, places) for text in getattr(given, name)]
        for name in ("args", "files", "sys_path")
    }
    options = msgspec.structs.replace(given, **moved)
    variables = dict(order.variables)
    if PYTHONPATH in variables:
        entries = variables[PYTHONPATH].split(":")
        variables[PYTHONPATH] = ":".join(_moved_all(entry, places) for entry in entries)
    cwd = os.path.normpath(Path(root, order.cwd))
    there = msgspec.structs.replace(site, root=root)
    return msgspec.structs.replace(
        order,
        options=options,
        variables=variables,
        site=there,
        cwd=cwd,
        tree=None,
        further=[],
        run=run,
    )


def _moved_all(text: str, places: list[tuple[str, str]]) -> str:
    """Name a path by its place on this side, wherever on the user's it lies; innermost first."""
    moved = (_moved(text, root, here) for root, here in places)
    return next((found for found in moved if found != text), text)


def chosen(order: orders.Order, choice: orders.Chosen) -> orders.Order:
    """Make of an order that was to collect first one that runs what has been chosen."""
    return msgspec.structs.replace(
        order, payload=choice.payload, limits=choice.limits, collects=False
    )


def _moved(text: str, root: str, here: str) -> str:
    """Name a path of the user's side by its place on this one.

    :param text: the path, or an option with the path in it.
    """
    if root == here or root not in text:
        return text
    before, _, rest = text.partition(root)
    fits = (not before or before[-1] in "=,:") and (not rest or rest[0] in "/:,")
    return f"{before}{here}{rest}" if fits else text
