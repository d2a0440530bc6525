"""Modal's serverless GPUs: one container for each worker, kept warm for a while.

Starts couriers, which speak to the service; knows neither the service's SDK nor the bytes.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib.util
import os
import queue
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Any, Final

from pytest_remotegpu.backends.base import (
    Backend,
    Channel,
    Environment,
    Finding,
    Heading,
    Left,
    Price,
    Site,
    Wanted,
)
from pytest_remotegpu.backends.modal import (
    building,
    examining,
    ours,
    rates,
    spec,
    stays,
    table,
)
from pytest_remotegpu.backends.modal.calling import Courier
from pytest_remotegpu.backends.modal.losses import Losses
from pytest_remotegpu.backends.modal.table import CardType
from pytest_remotegpu.errors import FarSideError, RemoteGpuError, UnreadyError, UsageError
from pytest_remotegpu.gpu import Shape

__all__ = ["Modal", "make"]

NAME: Final = "modal"
RUN_LIMIT: Final = 3600.0
"""Seconds that a run may take where nobody says otherwise: a forgotten one costs money."""
GRACE: Final = 60
"""Seconds of a container's own time-out above the run limit."""
LONGEST: Final = 86400 - GRACE
"""The longest run limit: Modal takes no time-out above a day."""
ENDING: Final = 4.0
"""Seconds that the end of a call takes where it has to be cancelled."""
IDLE: Final = 60.0
"""Seconds that a container stays without work where nobody says otherwise."""
START: Final = 10.0
"""Seconds that a container takes until its worker has collected, about."""
MOST_CONTAINERS: Final = 8
"""Containers at once of one environment and kind of card, for all who share a workspace; a session
asks for as many as it has workers, so this bounds what a mistake may cost."""
WIDE: Final = "200"
PRELOAD: Final = ("torch", "numpy")


class Modal:
    """``modal``: containers with GPUs, rented by the second.

    :param named: the types that the option names, in the order of preference.
    """

    ships_tree = True
    capacity = None
    one_host = False
    pretends = False
    prompt = False
    picks_cards = True
    run_limit: float = RUN_LIMIT
    start_seconds = START

    def __init__(self, rest: str, named: tuple[CardType, ...], site: Site) -> None:
        self.name = f"modal:{rest}" if rest else "modal"
        cards = spec.cards(named, 1)
        self.where = f"Modal, {cards} unless marked otherwise" if cards else "Modal"
        self._named = named
        self._site = site
        self._wanted: Wanted = site.wanted or ours.Plain()
        self._more: dict[str, str] = {}
        self._deployed = self._replaced = False
        self._spare: Courier | None = None
        # tests may change it; and what the SDK tells of a build should not be cut in lines
        self._variables = {**os.environ, "COLUMNS": WIDE, "MODAL_LOGS_TIMEOUT": "1"}
        self._rates = rates.known(self._variables, _today())
        self._asks_rates = rates.due(self._rates, _today())
        self._losses = Losses()
        self.stays: list[stays.Stay] = []
        self._abandoned: list[tuple[str, ...]] = []
        self._shown: set[str] = set()
        self._asked = 0.0
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        every = building.interval(self._variables)
        self.build = building.Building(self.tell, every=every, quiet=site.quiet)
        self._lock = threading.Lock()

    # what the session asks for

    def check(self, shape: Shape) -> None:
        """Look whether any type does for a shape.

        :raises UsageError: where none does.
        """
        spec.choose(self._named, shape)

    def offers(self, shape: Shape) -> list[str]:
        """Give the types of which a container may have any.

        :raises UsageError: where none does.
        """
        return [card.name for card in spec.choose(self._named, shape)]

    def larger(self, shape: Shape, names: Sequence[str], gib: float) -> Shape:
        """Give a shape whose cards have more memory; see :func:`spec.larger`."""
        return spec.larger(self._named, shape, names, gib)

    def describe(self) -> list[str]:
        """Say what the containers will run in, and why that would have to be made first.

        :raises UsageError: where it can't be made.
        """
        from pytest_remotegpu import recipe as recipes  # noqa: PLC0415 -- see the top

        recipe = self._wanted.recipe()
        more = self._more = self._more or ours.more()
        reasons = [f"new, since {text}" for text in self._wanted.why(NAME, more)]
        notes = [f"note, {text}" for text in recipe.notes]
        return [recipes.fingerprint(recipe, more), *recipes.describe(recipe), *reasons, *notes]

    def announced(self) -> list[str]:
        """Say of a new environment what its user should know.

        :raises UsageError: where it can't be made.
        """
        recipe = self._wanted.recipe()
        self._more = self._more or ours.more()
        return list(recipe.notes) if self._wanted.why(NAME, self._more) else []

    def examine(self) -> Iterator[Finding]:
        """Look at what stands between this host and a container; rents nothing."""
        shape = Shape(1)
        order = self._order(shape, spec.choose(self._named, shape), Environment())
        lines = [line for line in self.describe()[1:] if not line.startswith(("new, ", "note, "))]
        asked = {**order, "describes": lines}
        return examining.examine(self._site.executable, asked, self._variables)

    def prepare(self) -> None:
        """Start a courier ahead: signing in takes as long as collection does."""
        with contextlib.suppress(FarSideError):
            self._spare = self._courier()

    def open(self, shape: Shape, environment: Environment) -> Channel:
        """Rent a container, or use one that is warm.

        :raises UsageError: where the service does not take the token.
        :raises FarSideError: where the service does not answer.
        """
        types = spec.choose(self._named, shape)
        with self._lock:
            courier, self._spare = self._spare, None
        if courier is None:
            courier = self._courier()
        try:
            order = self._order(shape, types, environment)  # while the courier signs in
            courier.signed_in()
            courier.call(order)
        except RemoteGpuError:
            courier.stop()
            raise
        return courier

    def _order(
        self, shape: Shape, types: tuple[CardType, ...], environment: Environment
    ) -> dict[str, Any]:
        from pytest_remotegpu import recipe as recipes  # noqa: PLC0415 -- see the top
        from pytest_remotegpu.backends.modal import deploying  # noqa: PLC0415 -- only once it is needed

        gpu = spec.cards(types, shape.count)
        recipe = self._wanted.recipe()
        more = self._more = self._more or ours.more()
        fingerprint = environment.fingerprint or recipes.fingerprint(recipe, more)
        reasons = self._wanted.why(NAME, more)
        with self._lock:
            earlier, self._abandoned = self._abandoned, []
        app = deploying.name_of(fingerprint, gpu)
        with self._lock:
            shows = app not in self._shown
            self._shown.add(app)
        limit = self._site.run_limit or RUN_LIMIT
        return {
            "app": app,
            "fingerprint": fingerprint,
            "queue": f"{app}{deploying.QUEUE}",
            "claims": f"{app}{deploying.CLAIMS}",
            "nonce": secrets.token_hex(16),
            "gpu": gpu,
            "further": spec.further(types, shape),
            "env": dict(shape.env),
            "left": max(limit - (time.monotonic() - self._asked), 1.0) if self._asked else limit,
            "asked": time.time() if self._asked else 0.0,
            "seconds": round(limit) + GRACE,
            "workers": max(MOST_CONTAINERS, self._site.workers),
            "idle": self._idle,
            "fresh": self._site.fresh,
            "ephemeral": self._site.ephemeral,
            "run": spec.run_of(self._variables),
            "wait": self._site.wait,
            "delay": self._losses.delay,
            "after": self._losses.why,
            "earlier": earlier,
            "preload": [*PRELOAD, *self._site.preload],
            "secrets": list(recipe.secrets),
            "volumes": {volume.path: (volume.name, volume.read_only) for volume in recipe.volumes},
            "shows": shows,
            "reason": "; ".join(reasons),
            "uncounted": recipes.rents(recipe.steps) if self._site.capped else [],
            "recipe": recipes.encode(recipe),
        }

    def close(self) -> None:
        """End a courier that nobody has needed."""
        with self._lock:
            courier, self._spare = self._spare, None
        if courier is not None:
            courier.stop()
        if self._deployed:
            self._wanted.keep(NAME, self._more)

    def left(self) -> Sequence[Left]:
        """Give the containers that are there after the session's last word with them."""
        return stays.left(self.stays, self._idle, time.time())

    def _courier(self) -> Courier:
        return Courier(self._site.executable, self, self._variables)

    @property
    def _idle(self) -> float:
        """Seconds that a container stays without work; the fewest where nothing may stay warm."""
        wanted = self._site.idle if "idle" in self._site.chosen else IDLE
        return float(stays.window(0.0 if self._site.fresh else wanted))

    # what couriers say

    def asked(self, at: float) -> None:
        """Take note of when a container was asked for; with the first one the run begins."""
        self._asked = self._asked or at

    @property
    def keeps(self) -> bool:
        """Whether a container stays without work."""
        return not self._site.ephemeral

    def deployed(self) -> None:
        """Take note that a container of the environment has started."""
        self._deployed, self._replaced = True, False

    def replaces(self) -> bool:
        """Say whether another courier may come for one killed before a container was there.

        One may, until a container has greeted: what ends them may end them all.
        """
        with self._lock:
            again, self._replaced = not self._replaced, True
        return again

    def tell(self, text: str, *, page: str | None = None) -> None:
        """Keep a line for the user.

        :param page: where what it speaks of is shown, if it is for the header.
        """
        self._lines.put(text if page is None else Heading(text, page))

    def told(self) -> list[str]:
        """Give the lines that have come since the last call."""
        lines = []
        self.build.look(time.monotonic())
        with contextlib.suppress(queue.Empty):
            while True:
                lines.append(self._lines.get_nowait())
        return lines

    def ended(self, called: float, *, lost: str, worked: float) -> None:
        """Take note of how a call ended: after losses in a row the next one waits longer.

        :param called: when it was made. :param lost: why, where its container was lost.
        :param worked: for how many seconds that spoke.
        """
        with self._lock:
            self._losses.ended(called, time.monotonic(), lost=bool(lost), worked=worked, why=lost)

    def abandoned(self, call: tuple[str, ...]) -> None:
        """Take note of a call whose courier is gone, so that the next one ends it.

        :param call: its queue, the partition of that, the app's dict, and its id if that is known.
        """
        with self._lock:
            self._abandoned.append(call)

    def wants_rates(self) -> bool:
        """Say whether a courier is to ask for the workspace's rates: one of them, once a day."""
        with self._lock:
            asks, self._asks_rates = self._asks_rates, False
        return asks

    def take_rates(self, told: Mapping[str, Any], workspace: str) -> None:
        """Take what the workspace pays, for prices that are asked for from now on, and keep it."""
        found = rates.read(told, workspace, _today())
        if found.usd:
            self._rates = found
            rates.keep(self._variables, found)

    def price(self, shape: Shape) -> Price:
        """Give the price of one container, by the dearest type that it may get.

        By the workspace's rates, where they are known by now; nobody is asked and waited for.
        """
        names = self.offers(shape)
        found = table.price(names, shape.count, self._site.prices, listed=self._rates)
        after = self._idle if self.keeps else 0.0
        return replace(found or Price(None, ""), after=after, ending=ENDING)


def _today() -> dt.date:
    return dt.datetime.now(tz=dt.UTC).date()


def _check_limit(site: Site) -> None:
    """Look whether Modal takes the run limit, a minute added.

    :raises UsageError: where it does not.
    """
    ways = f"give 1 to {LONGEST} seconds, or leave it out for {RUN_LIMIT:g}"
    if site.run_limit > LONGEST:
        raise UsageError(
            f"--remote-run-timeout={site.run_limit:g}: Modal ends each container after a day, a "
            f"minute of which is kept for its end; {ways}"
        )
    if "run_timeout" in site.chosen and not site.run_limit:
        raise UsageError(
            f"--remote-run-timeout=0 is no limit, and at Modal there has to be one; {ways}"
        )


def _backends() -> list[str]:
    return [point.name for point in entry_points(group="pytest_remotegpu.backends")]


def make(rest: str, site: Site) -> Backend:
    """Read nothing, a GPU type, or types with commas of which the first free one is taken.

    :raises SpecError: for a type that Modal has not. :raises UnreadyError: without its SDK.
    :raises UsageError: where the project's files describe no environment that can be made there,
        the run limit is none that Modal takes, or a price is for a card that there is not.
    """
    named = spec.parse(rest)
    _check_limit(site)
    spec.check_prices(site.prices, _backends)
    spec.run_of(os.environ)
    try:
        version("modal")
    except PackageNotFoundError:
        if importlib.util.find_spec("modal") is None:
            how = f"{site.executable or 'python'} -m pip install 'pytest-remotegpu[modal]'"
            raise UnreadyError("--remote=modal needs Modal's SDK", fix=how) from None
    backend = Modal(rest, named, site)
    if site.wanted is not None:
        site.wanted.check()
    return backend
