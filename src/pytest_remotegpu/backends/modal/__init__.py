"""Modal's serverless GPUs: one container for each worker, kept warm for a while.

Starts couriers, which speak to the service; knows neither the service's SDK nor the bytes.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib.util
import json
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
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
    trouble,
)
from pytest_remotegpu.backends.modal.losses import Losses
from pytest_remotegpu.backends.modal.table import CardType
from pytest_remotegpu.backends.stdio import StdioChannel
from pytest_remotegpu.errors import FarSideError, RemoteGpuError, UnreadyError, UsageError
from pytest_remotegpu.gpu import Shape

__all__ = ["Modal", "make"]

COURIER: Final = "pytest_remotegpu.backends.modal.courier"
NAME: Final = "modal"
RATES: Final = "--rates"
MARK: Final = b"\x1e"
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
SIGNING_IN: Final = 30.0
"""Seconds in which a courier must know whether the service takes the token."""
LAST_LINES: Final = 12
"""Lines of an image's build that are shown where it fails."""
WIDE: Final = "200"
PRELOAD: Final = ("torch", "numpy")


class Courier(StdioChannel):
    """A process that speaks to the service, and one call through it.

    :param backend: hears what the user should know, and how calls end.
    :ivar note: where the work runs, once that is known.
    :ivar preempted: whether its container was taken away; ``on_notice``, called before that.
    :ivar rental: the container, since when and how long.
    """

    def __init__(self, python: str, backend: Modal, variables: Mapping[str, str]) -> None:
        self._backend = backend
        self._settled = threading.Event()
        self._end: dict[str, str] = {}
        self._diagnosis = ""
        self._container = ""
        self._stay = stays.Stay(keeps=backend.keeps)
        self.rental = self._stay.rental
        self._call = ("", "", "", "")
        self.preempted = False
        self.on_notice: Callable[[], None] = lambda: None
        asks = [RATES] if backend.wants_rates() else []
        self._called = time.monotonic()
        super().__init__([python, "-P", "-m", COURIER, *asks], variables)

    def _listen(self) -> None:
        """Read what the courier says: marked lines are for us, others for people."""
        assert self._process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            for line in self._process.stderr:
                if line.startswith(MARK):
                    self._hear(json.loads(line[1:]))
                elif line.strip():
                    self._errors += line
                    del self._errors[: -(2**14)]
                    self._backend.build.line(line.decode("utf-8", "replace").rstrip())
        self._backend.build.end(self)
        self._settled.set()

    def _hear(self, said: dict[str, Any]) -> None:
        self._stay.hear(said, time.monotonic(), time.time())
        self._backend.build.hear(self, said)
        if "asked" in said:
            self._backend.asked(time.monotonic())
        elif "end" in said:
            self._end, self.preempted = said, said["end"] == "preempted"
        elif "say" in said:
            self._backend.tell(said["say"], page=said.get("page"))
        elif "rates" in said:
            self._backend.take_rates(said["rates"], said["workspace"])
        elif "notice" in said:
            self.on_notice()
        elif "ended" in said:
            self._diagnosis = said["ended"]
        elif "call" in said:
            self._call = (*self._call[:3], said["call"])
        if "container" in said:
            self._container = said["container"]
            self._backend.deployed()
        if "ready" in said or "end" in said:
            self._settled.set()

    def signed_in(self) -> None:
        """Wait until the service takes the token.

        :raises UsageError: where it does not. :raises FarSideError: where it does not answer.
        """
        if not self._settled.wait(SIGNING_IN):
            self.stop()
            raise FarSideError(f"Modal does not answer within {SIGNING_IN:g} s", fix=trouble.LOOK)
        self._raise_end()

    def _raise_end(self) -> None:
        what, fix = self._end.get("text", ""), self._end.get("fix", "")
        if self._end.get("end") == "usage":
            raise UsageError(what, fix=fix)
        if self._end.get("end") == "infra":
            last = self._errors.decode("utf-8", "replace").splitlines()[-LAST_LINES:]
            raise FarSideError(
                "\n".join([what, *(last if self._end.get("built") else [])]), fix=fix
            )

    def call(self, order: dict[str, Any]) -> None:
        """Say what is to be called; the first piece that is sent begins it."""
        self._called = time.monotonic()
        self._call = (order["queue"], order["nonce"], order["claims"], "")
        self._stay.app = order["app"]
        self._backend.stays.append(self._stay)
        super().send(json.dumps(order).encode() + b"\n")

    def send(self, data: bytes) -> None:
        """Send one piece.

        :raises FarSideError: where the courier is gone.
        """
        super().send(len(data).to_bytes(8, "big") + data)

    def frames(self) -> Iterator[bytes]:
        """Yield what the worker sends.

        :raises UsageError: where the service refuses what was asked for.
        :raises FarSideError: where no test can run.
        """
        spoke = 0.0
        for data in super().frames():
            spoke = spoke or time.monotonic()
            yield data
        self._listener.join(5.0)
        self._stay.close()
        if self.rental.asked is not None and not self._end and not self._diagnosis:
            self._backend.abandoned(self._call)
        self.passing = self._end.get("end") in trouble.PASSING
        worked = time.monotonic() - spoke if spoke else 0.0
        lost = self._end["text"] if self.passing else ""
        self._backend.ended(self._called, lost=lost, worked=worked)
        self._raise_end()

    @property
    def fix(self) -> str:
        """What to do about how the work ended."""
        return self._end.get("fix", "")

    def diagnosis(self) -> str:
        """Say how the work ended."""
        text = super().diagnosis()
        self.passing = self._end.get("end") in trouble.PASSING
        said = [self._end.get(part, "") for part in ("text", "fix")]
        return "; ".join(filter(None, said)) or self._diagnosis or text


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
        self._deployed = False
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
        self._deployed = True

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


def make(rest: str, site: Site) -> Backend:
    """Read nothing, a GPU type, or types with commas of which the first free one is taken.

    :raises SpecError: for a type that Modal has not. :raises UnreadyError: without its SDK.
    :raises UsageError: where the project's files describe no environment that can be made there,
        or the run limit is none that Modal takes.
    """
    named = spec.parse(rest)
    _check_limit(site)
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
