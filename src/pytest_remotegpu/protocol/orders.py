"""What goes out: the order, and the few small messages that may follow it.

The order's header is plain data for the supervisor; its payload is opened in the runner only.
This direction may carry pickles, because the far side runs the user's code anyhow. Knows nothing
of how an order travels, nor of what is in its payload.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec

from pytest_remotegpu.gpu import Shape

__all__ = [
    "GROUPS_END",
    "Blob",
    "Chosen",
    "Finish",
    "Follows",
    "Interrupt",
    "Keys",
    "Launch",
    "Limits",
    "Meet",
    "Message",
    "Needs",
    "Options",
    "Order",
    "Pack",
    "Run",
    "Shown",
    "Site",
    "Stop",
    "Tree",
    "Values",
    "Window",
    "Withdraw",
]


class Tree(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files of the user's side: a list of them, which the far side may have already.

    :ivar digest: of the list, a :class:`~pytest_remotegpu.manifest.Manifest`.
    :ivar manifest: the list itself, compressed with zlib; empty where it is to be asked for.
    :ivar unfolded: bytes that it has when it is not compressed.
    :ivar base: the digest of a list from an earlier session; empty for none.
    :ivar delta: what makes this list of that one.
    :ivar project: names the project, so that its tree is found again.
    :ivar name: of the folder that holds the files.
    :ivar root: that folder on the sending side, where it is not the order's own.
    """

    digest: str
    manifest: bytes = b""
    unfolded: int = 0
    base: str = ""
    delta: bytes = b""
    project: str = ""
    name: str = ""
    root: str = ""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the runner's session is to be: plain data, paths as they are on the sending side.

    :ivar args: the session's command line. :ivar argv: what ``sys.argv`` shows.
    :ivar files: the files of the tests; where ``keep_args``, ``args`` says what is collected.
    :ivar roots: whether these may also be folders, or whatever pytest takes as an argument, and all
        that is found there is meant, as hooks of conftests leave it.
    :ivar sys_path: entries of the import path: all of it (``whole_path``), or those in the project.
    :ivar color: ``yes`` or ``no``; :ivar width: columns of the user's terminal.
    :ivar live: whether output is sent while it is written.
    :ivar log_level: records from this level up are sent; ``None`` for none.
    :ivar junit: the format of the user's junit file; empty where none is written.
    :ivar workers: how many workers the session has; :ivar run: its id.
    :ivar shown_worker: what tests are to see as their worker's id, where that is another one: that
        of the process of pytest-xdist that sends them. :ivar shown_argv: the session's arguments.
    :ivar python: options of the interpreter, as they stand on a command line.
    :ivar terminal: the kind of the user's terminal, where somebody sits at one for a debugger; else
        empty, and ``nobody`` says why nobody does, with the way out.
    :ivar screen: its rows and columns.
    :ivar folders: the options that name folders of the user's side, into which plugins write.
    """

    args: list[str]
    argv: list[str]
    files: list[str]
    keep_args: bool = False
    roots: bool = False
    sys_path: list[str] = []
    whole_path: bool = False
    umask: int = 0o022
    color: str = "no"
    width: int = 80
    live: bool = False
    log_level: int | None = None
    junit: str = ""
    workers: int = 1
    run: str = ""
    shown_worker: str = ""
    shown_argv: list[str] = []
    python: list[str] = []
    coverage: Coverage | None = None
    terminal: str = ""
    nobody: str = ""
    screen: tuple[int, int] = (24, 80)
    folders: list[str] = []


class Coverage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What coverage.py is to measure.

    :ivar branch: whether arcs are meant, not lines. :ivar what: the options of its class that say
        which files. :ivar concurrency: how tests run things side by side.
    """

    branch: bool = False
    what: dict[str, list[str]] = {}
    concurrency: list[str] = []


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor tells a runner of the host.

    :ivar devices: the value of ``CUDA_VISIBLE_DEVICES``; ``None`` to leave it.
    :ivar pretend: the number of pretend GPUs; ``None`` where GPUs are real.
    :ivar artifacts: the folder for the tests' artifacts. :ivar root: the project's folder there.
    :ivar caches: the folder for what compilers of kernels keep; empty to leave them alone.
    :ivar barred: why files must not be imported that ended processes before, by their ids.
    :ivar attempts: at tests that ended processes before, by their places.
    :ivar rank: the number of this process among those that run the tests together; -1 for none.
    :ivar terminal: the path of a pseudo-terminal of the runner's own; empty where it has none.
    """

    devices: str | None = None
    pretend: int | None = None
    artifacts: str = ""
    root: str = ""
    caches: str = ""
    barred: dict[bytes, bytes] = {}
    attempts: dict[int, int] = {}
    rank: int = -1
    terminal: str = ""


class Needs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the tests ask of each of their cards; the number of cards stands in the order.

    :ivar type: names of card types, any of which will do; empty for any card.
    :ivar min_memory_gib: of one card, in GiB. :ivar min_capability: such as 8.0.
    """

    type: list[str] = []
    min_memory_gib: float = 0.0
    min_capability: float = 0.0

    @classmethod
    def of(cls, shape: Shape, *, named: bool) -> Needs:
        """Give what a shape asks for.

        :param named: whether the types that it names are to be looked for there.
        """
        return cls(
            type=list(shape.type) if named else [],
            min_memory_gib=shape.min_memory_gib,
            min_capability=shape.min_capability,
        )


GROUPS_END: Final = dt.timedelta(days=1)
"""After which a process group of ranks gives up by itself; the test's limit ends it before."""


class Launch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How several processes, the ranks, run each test together.

    :ivar launcher: by which launcher's rules. :ivar ranks: how many there are.
    """

    launcher: str
    ranks: int

    @classmethod
    def of(cls, shape: Shape) -> Launch | None:
        """Give what a shape asks for; ``None`` where one process runs a test."""
        return cls(launcher=shape.launcher, ranks=shape.ranks) if shape.launcher else None


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds that things may take on the far side; 0 for no limit.

    :ivar timeout: one test, from its setup to the end of its teardown.
    :ivar wait: for cards that others hold.
    :ivar tests: the limit of single tests, by their place, where it is another one.
    :ivar again: how often a test that ends its process is run again, by its place.
    """

    timeout: float = 0.0
    wait: float = 0.0
    tests: dict[int, float] = {}
    again: dict[int, int] = {}


class Run(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """Run the tests from place ``first`` up to, not including, ``last``.

    It may come before the one that it follows has ended, and then waits. An empty one asks for the
    start only: its end says that the files have been collected.

    :ivar failures: stop after so many further failures; 0 for no limit.
    :ivar following: the place of the test that will run after these; -1 where that is not known:
        then it is taken to be the neighbour, as collected.
    """

    first: int
    last: int
    failures: int = 0
    following: int = -1


class Order(msgspec.Struct, frozen=True, array_like=True, tag="order"):
    """All that one worker has to do.

    :ivar worker: the worker's id, which stands in each frame that comes back.
    :ivar nonce: this attempt's mark, likewise.
    :ivar gpus: how many GPUs the tests see.
    :ivar cwd: the working directory, absolute, or relative to the tree's root where a tree is sent.
    :ivar root: the project's root on the sending side.
    :ivar tree: the files to lay out; ``None`` to work in ``root`` itself.
    :ivar variables: environment variables to set.
    :ivar environ: the whole environment to use instead of the worker's own; ``None`` to keep that.
    :ivar options: how the runner's session is to be. :ivar site: for the runner, by its supervisor.
    :ivar max_artifact: bytes that the artifacts of one test may take.
    :ivar payload: a cloudpickle of what only the runner may open.
    :ivar run: the first stretch.
    :ivar further: files to lay out beside the tree: of packages that lie elsewhere.
    :ivar collects: whether the files' trees are to be told; the tests come later, as ``Chosen``.
    :ivar launch: how several processes run each test; ``None`` where one does.
    """

    worker: str
    nonce: str
    gpus: int
    cwd: str
    root: str
    tree: Tree | None
    variables: dict[str, str]
    environ: dict[str, str] | None
    options: Options
    max_artifact: int
    payload: bytes
    run: Run
    site: Site = Site()
    needs: Needs = Needs()
    limits: Limits = Limits()
    further: list[Tree] = []
    collects: bool = False
    launch: Launch | None = None


class Chosen(msgspec.Struct, frozen=True, array_like=True, tag="chosen"):
    """The tests of an order that was to collect first: what is in an order's fields of these names.

    The files stay those that have been collected.
    """

    payload: bytes
    limits: Limits


class Follows(msgspec.Struct, frozen=True, array_like=True, tag="follows"):
    """After all that was asked for so far comes the test of this place, as ``Run.following`` says.

    Whoever is told that too late goes by what was said before.
    """

    place: int


class Withdraw(msgspec.Struct, frozen=True, array_like=True, tag="withdraw"):
    """Begin no stretch that waits, and say which those are; the session goes on.

    :ivar running: whether the one that runs is to end as well, once its running test has.
    """

    running: bool = False


class Finish(msgspec.Struct, frozen=True, array_like=True, tag="finish"):
    """No further stretch: end the session there in good order."""


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """End now: tear down within ``grace`` seconds, then be ended.

    :ivar limit: where a limit of the run is the reason, that limit in words: the running test has
        then timed out, and is ended at once with a look at what it did.
    """

    grace: float
    limit: str = ""


class Keys(msgspec.Struct, frozen=True, array_like=True, tag="keys"):
    """What the user has typed for the debugger, byte by byte; Ctrl-C is one of these bytes."""

    data: bytes


class Window(msgspec.Struct, frozen=True, array_like=True, tag="window"):
    """The size of the user's terminal, in characters."""

    rows: int
    columns: int


class Interrupt(msgspec.Struct, frozen=True, array_like=True, tag="interrupt"):
    """Send the running test what Ctrl-C sends: its session has a debugger for that."""


class Values(msgspec.Struct, frozen=True, array_like=True, tag="values"):
    """The answer to ``Wants``: a cloudpickle for the runner."""

    payload: bytes


class Shown(msgspec.Struct, frozen=True, array_like=True, tag="shown"):
    """Supervisor to runner, where output is live: all is shown, the next test may begin."""


class Meet(msgspec.Struct, frozen=True, array_like=True, tag="meet"):
    """Launcher to rank: in the tests that follow, the ranks find each other at this port.

    :ivar store: whether the launcher holds the store there, and no rank is to make it.
    """

    port: int
    store: bool


class Blob(msgspec.Struct, frozen=True, array_like=True, tag="blob"):
    """A piece of the content of ``digest``; ``last`` ends it.

    :ivar gone: the content has changed since it was listed: its files are left out.
    :ivar unfolded: bytes that the piece has when it is not compressed; 0 where it is not.
    """

    digest: str
    data: bytes
    last: bool = True
    gone: bool = False
    unfolded: int = 0


class Pack(msgspec.Struct, frozen=True, array_like=True, tag="pack"):
    """Many small contents, one after the other, compressed together with zlib."""

    digests: list[str]
    sizes: list[int]
    data: bytes


Message = (
    Order
    | Chosen
    | Run
    | Follows
    | Withdraw
    | Finish
    | Stop
    | Keys
    | Window
    | Interrupt
    | Values
    | Blob
    | Pack
    | Shown
    | Meet
)
