"""The contract that every backend fulfils: rent a host, move bytes, stop it.

It never looks into those bytes, and must not know the wire or pytest.

A backend is one file and one entry point in the group ``pytest_remotegpu.backends``; the entry
point names a callable ``make(rest, site) -> Backend``, where ``rest`` is what stands after the
first colon of ``--remote=NAME:REST``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, Self, runtime_checkable

from pytest_remotegpu.gpu import Shape

from .found import Finding, Left, Running

if TYPE_CHECKING:  # it needs a package that remotegpu doctor does without
    from pytest_remotegpu.recipe import Recipe

__all__ = [
    "OWN",
    "Announces",
    "Backend",
    "Channel",
    "Checks",
    "Collects",
    "Departs",
    "Describes",
    "Environment",
    "Examines",
    "Finding",
    "Follows",
    "Heading",
    "Leaves",
    "Left",
    "Lists",
    "Make",
    "MakeLists",
    "Offers",
    "Picks",
    "Prepares",
    "Price",
    "Prices",
    "Rental",
    "Running",
    "Site",
    "Tells",
    "Wanted",
    "Warns",
]

OWN: Final = "ini file, remotegpu_prices"
"""The source of a price that the user has given."""


class Wanted(Protocol):
    """What a session wants its far side to be equipped with; for backends that make an image."""

    def check(self) -> Recipe:
        """Read the project's files, before anything is rented.

        :raises UsageError: where they can't be meant, or can't work with this side's versions.
        """

    def recipe(self) -> Recipe:
        """Give what :meth:`check` does, with what the project's hook does to the image.

        :raises UsageError: as :meth:`check`, and where the hook gives something else.
        """

    def why(self, provider: str, more: Mapping[str, str]) -> list[str]:
        """Say how the recipe differs from the one that was used last with a provider.

        :param more: what else its environments depend on, by name, such as its client's version.
        """

    def keep(self, provider: str, more: Mapping[str, str]) -> None:
        """Remember the recipe as one whose environment is there; called from the main thread."""


@dataclass(frozen=True)
class Site:
    """What a backend may know of the session that makes it.

    :ivar python: the far interpreter that the user named (ini ``remotegpu_python``), or empty.
    :ivar executable: the interpreter of this session.
    :ivar platform: as ``sys.platform``.
    :ivar root: the project's folder.
    :ivar fresh: whether nothing that is kept warm may be used.
    :ivar idle: seconds for which something warm stays when nobody needs it.
    :ivar preload: modules that something warm is to import ahead.
    :ivar run_limit: seconds for all that runs far away; 0 where the user names none.
    :ivar wait: seconds to wait for a card that is not free; 0 for any time.
    :ivar workers: how many workers of one shape the session may have open at once; that is all of
        its processes together, where pytest-xdist spreads it over several.
    :ivar ephemeral: whether what is made for this session is to end with it.
    :ivar chosen: names of the settings that are the user's own, not a default.
    :ivar wanted: what the far side is to be equipped with; ``None`` where nobody has said.
    :ivar quiet: whether the user wants to see no more than what counts (``-q``).
    :ivar prices: what the user says of prices: USD for one GPU and an hour, by type of card or
        name of backend. A backend with prices of its own lets these stand above them.
    :ivar capped: whether the user has set a limit to what the session may cost.
    :ivar begun: a worker that was asked for ahead; used once, by the backend that knows it.
    """

    python: str = ""
    executable: str = ""
    platform: str = "linux"
    root: str = ""
    fresh: bool = True
    idle: float = 600.0
    preload: tuple[str, ...] = ()
    run_limit: float = 0.0
    wait: float = 0.0
    workers: int = 1
    ephemeral: bool = False
    chosen: frozenset[str] = frozenset()
    wanted: Wanted | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    quiet: bool = False
    capped: bool = False
    begun: object = None


@dataclass(frozen=True)
class Environment:
    """In which surroundings a worker process is started.

    :ivar variables: the whole environment for a process on this host; a backend that starts its
        worker elsewhere leaves it alone, since what the user passes on travels in the order.
    :ivar fingerprint: names the environment for backends that keep one warm; may be empty.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str = ""


class Channel(Protocol):
    """One worker's two byte streams.

    Where they are known, ``command`` says how it was started, as a list of words, and ``note`` what
    the user should know of that, as a line of text. Once ``frames`` is exhausted, ``passing`` says
    whether what ended the worker may be gone when it is tried again, as a machine that was taken
    away: then a worker that has not said hello is tried again, too. ``preempted`` says whether that
    is so because the machine was taken away, by whoever rents it out: then no test is to blame, and
    what has no verdict is run elsewhere, in bounds. ``fix`` says what to do about how it ended, in
    the words with which ``diagnosis`` ends. ``headline`` says in one line how it ended, where the
    last line of ``diagnosis`` does not; empty where it does. A backend that rents a machine for
    each worker says in ``rental`` since when that is paid for; without one, a worker is paid for
    from when it was opened.

    ``send`` and ``stop`` are called from one thread, ``frames`` from another.
    """

    def send(self, data: bytes) -> None:
        """Send bytes to the worker.

        The first call carries the hello and the whole order; later calls are rare and small, apart
        from files that the worker said it lacks.

        :raises FarSideError: where the worker can't be reached any more.
        """

    def frames(self) -> Iterator[bytes]:
        """Yield what the worker sends, in chunks of any size, until it ends.

        A worker that died raises nothing here.

        :raises UsageError: where the user has to mend something first.
        :raises FarSideError: where no worker can be had, nor will a further try get one.
        """

    def stop(self) -> None:
        """End the worker with everything it has started, at once.

        May be called twice, and for a worker that has ended by itself.
        """

    def diagnosis(self) -> str:
        """Say how the worker ended, with the last of its error output.

        Called once ``frames`` is exhausted.
        """


@runtime_checkable
class Departs(Protocol):
    """A channel whose worker takes itself away, with all that it has started.

    Once the last event of its stream has come, nothing more is read from it; ``stop`` then waits
    for its end, and is called while this side goes on.
    """

    departs: bool


@runtime_checkable
class Warns(Protocol):
    """A channel that can learn that its machine will be taken away implements this as well.

    Its worker is then asked to end once its running test has.

    :ivar on_notice: to be called then, from any thread; the session sets it after ``open``.
    """

    on_notice: Callable[[], None]


@dataclass
class Rental:
    """The machine that is rented behind one channel; all times by the monotonic clock.

    What comes before it is asked for, such as the build of an image, is not paid for.

    :ivar builds: when what it needs began to be built, where that was not there.
    :ivar asked: when it was asked for. :ivar began: when it began, once it has said so.
    :ivar machine: what it is called; workers with the same one follow each other on it.
    :ivar had: whether there was one, although it has said nothing.
    :ivar stays: whether it is paid for after the stream has ended, too; not if it is gone.
    """

    builds: float | None = None
    asked: float | None = None
    began: float | None = None
    machine: str = ""
    had: bool = False
    stays: bool = True

    def since(self, *, ended: bool) -> float | None:
        """Say since when it is paid for; ``None`` for not at all.

        As long as nobody knows whether there is one yet, that is since it was asked for.

        :param ended: whether the channel has come to its end.
        """
        if self.began is not None:
            return self.began
        return self.asked if self.had or not ended else None


@dataclass(frozen=True)
class Price:
    """What a shape costs: ``usd_per_hour`` for one worker, and the ``date`` of that price.

    Where only the user can know it, ``usd_per_hour`` is ``None``, and the times count as well.

    :ivar source: where the price stands. :ivar after: seconds for which a worker is paid for after
        its stream has ended. :ivar ending: those that its end takes longer than on this host.
    """

    usd_per_hour: float | None
    date: str
    source: str = ""
    after: float = 0.0
    ending: float = 0.0


class Backend(Protocol):
    """A place where workers can be had.

    :ivar name: as it stands in ``--remote=``, such as ``local:cpu``.
    :ivar ships_tree: whether the project's files must travel (else the worker runs in them).
    :ivar capacity: how many GPUs it has in all, where that is known beforehand; else ``None``.
    :ivar one_host: whether all its workers share the GPUs of one host; then only as many run at
        once as fit, by ``capacity`` or by what the first worker's hello says.
    :ivar pretends: whether its GPUs are known to be pretend ones.
    :ivar prompt: whether a worker says hello within seconds, so that it is worth waiting for
        before the first local test.
    :ivar where: a few words for people, such as ``this host, no GPU``.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 -- described above, as are the others
    @property
    def ships_tree(self) -> bool: ...  # noqa: D102 -- as above
    @property
    def capacity(self) -> int | None: ...  # noqa: D102 -- as above
    @property
    def one_host(self) -> bool: ...  # noqa: D102 -- as above
    @property
    def pretends(self) -> bool: ...  # noqa: D102 -- as above
    @property
    def prompt(self) -> bool: ...  # noqa: D102 -- as above
    @property
    def where(self) -> str: ...  # noqa: D102 -- as above

    def open(self, shape: Shape, environment: Environment) -> Channel:
        """Start one worker that offers ``shape``.

        :raises FarSideError: where none is to be had.
        """


class Make(Protocol):
    """What a backend's entry point names."""

    def __call__(self, rest: str, site: Site) -> Backend:
        """Read ``rest``.

        :raises SpecError: where it is not understood; the message lists what is.
        """


@runtime_checkable
class Checks(Protocol):
    """A backend that can tell beforehand what it will never have implements this as well."""

    def check(self, shape: Shape) -> None:
        """Look at a shape before anything is opened.

        :raises UsageError: where no worker can offer it.
        """


@runtime_checkable
class Offers(Protocol):
    """A backend that has cards of several types implements this as well, beside :class:`Checks`."""

    def offers(self, shape: Shape) -> Sequence[str]:
        """Give the types of card of which a worker of a shape may get any, in order.

        :raises UsageError: where no worker can offer the shape.
        """

    def larger(self, shape: Shape, names: Sequence[str], gib: float) -> Shape:
        """Give a shape, equal to no mark's, whose cards have more memory than any of this one's.

        :param names: types of which it is to be one; the cheapest that does where there are none.
        :param gib: what each must have, as printed on it; 0 for any.
        :raises UsageError: where there is none that its mark lets it have.
        """


@runtime_checkable
class Picks(Protocol):
    """A backend that knows card types by names of its own, and gets tests one, has this as well.

    Their workers don't look whether the driver calls the card by the name that a mark has.
    """

    @property
    def picks_cards(self) -> bool:
        """Whether it does."""


@runtime_checkable
class Describes(Protocol):
    """A backend that makes an environment and can tell which one implements this as well."""

    def describe(self) -> list[str]:
        """Say in lines what its workers will run in; nothing is made or asked for by that.

        :raises UsageError: where no such environment can be made.
        """


@runtime_checkable
class Examines(Protocol):
    """A backend that can look at what it needs without renting anything implements this as well."""

    def examine(self) -> Iterator[Finding]:
        """Yield what is found, one thing after the other; ends where no worker can be had."""


@runtime_checkable
class Prepares(Protocol):
    """A backend that needs time before its first worker implements this as well."""

    def prepare(self) -> None:
        """Begin what costs nothing, since a worker will be wanted soon; must not wait."""

    def close(self) -> None:
        """End what was begun and not used."""


class Heading(str):
    """A line that belongs to the header of a session: it is not shown where that is not.

    :ivar page: the address at which people see what the line speaks of, for the run as data.
    """

    __slots__ = ("page",)
    page: str

    def __new__(cls, text: str, page: str = "") -> Self:
        """Make one."""
        made = super().__new__(cls, text)
        made.page = page
        return made


@runtime_checkable
class Announces(Protocol):
    """A backend that has something to say of a session as a whole implements this as well."""

    def announced(self) -> list[str]:
        """Give the lines for the user; asked once, before the first worker is opened.

        Where pytest-xdist has several processes, one of them asks.

        :raises UsageError: where no worker can be had; asked for one, it says so again.
        """


@runtime_checkable
class Tells(Protocol):
    """A backend that has something to say while a worker is on its way implements this as well.

    :ivar run_limit: seconds that all far work may take where the user names no limit.
    """

    @property
    def run_limit(self) -> float: ...  # noqa: D102 -- described above

    def told(self) -> list[str]:
        """Give the lines for the user that have come since the last call."""


@runtime_checkable
class Prices(Protocol):
    """A backend that costs money implements this as well.

    One that rents a machine for each worker may say in ``start_seconds`` how long that takes to
    start: then none is asked for that would come when all is done.
    """

    def price(self, shape: Shape) -> Price | None:
        """Give the price of one worker of ``shape``; ``None`` where nothing is known of it.

        Of several types of card that the worker may get, that of the dearest. Asked before anything
        is opened; rents nothing.
        """


@runtime_checkable
class Leaves(Protocol):
    """A backend whose machines may be paid for after a session implements this as well."""

    def left(self) -> Sequence[Left]:
        """Give those that are there once all workers were stopped; asks nobody.

        One that has ended may be given with ``until`` 0: then it is gone for other processes of
        the session as well, which have used it before.
        """


@runtime_checkable
class Lists(Protocol):
    """A backend whose workers outlive a session implements this as well."""

    def list(self) -> list[Running]:
        """Give what runs for this user."""

    def stop(self, id: str) -> None:
        """End one of those.

        :raises FarSideError: where there is none by that id.
        """

    def logs(self, id: str) -> Iterator[str]:
        """Yield the log lines of one of those."""


@runtime_checkable
class Follows(Protocol):
    """What lists may also show the lines of a log that are yet to come."""

    def follow(self, id: str) -> Iterator[str]:
        """Yield the newest lines of a log, then each that comes, until the thing ends.

        :raises FarSideError: where there is none by that id.
        """


@runtime_checkable
class Collects(Protocol):
    """What lists may also know of things that no session will use or end any more."""

    def orphans(self) -> Sequence[Running]:
        """Give those; each made by this package for this user, and certainly of no use."""

    def collect(self, id: str) -> None:
        """Take one of those away.

        :raises FarSideError: where that can't be done.
        """


class MakeLists(Protocol):
    """What an entry point of the group ``pytest_remotegpu.lists`` names."""

    def __call__(self, site: Site) -> Lists | None:
        """Make what lists; asks nobody yet.

        :return: ``None`` where this user has nothing to do with the backend.
        """
