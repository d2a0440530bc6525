"""What comes back: a closed union of events, and the reports among them.

Every event is data. Tests are named by their place in the order, so an event can't name a test
that was not handed out. Knows nothing of how events travel, which is ``frames``, nor of what a
report is to pytest, which is ``packing``.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from pytest_remotegpu.protocol import plain
from pytest_remotegpu.protocol.inventory import Has

__all__ = [
    "CUT_SHORT",
    "FAILED",
    "LEFT",
    "OVER",
    "SHOWN",
    "Artifact",
    "Attached",
    "Batch",
    "CollectFailed",
    "Collected",
    "Covered",
    "Crashed",
    "Detached",
    "Dropped",
    "Ended",
    "Event",
    "Exited",
    "FileTree",
    "Finished",
    "Junit",
    "Leased",
    "Live",
    "Log",
    "Memory",
    "Need",
    "NotFound",
    "Note",
    "Phases",
    "Report",
    "Screen",
    "Section",
    "SessionEnded",
    "SkippedThere",
    "StartFailed",
    "Started",
    "StretchEnded",
    "Waiting",
    "Wants",
    "Warned",
    "Withdrawn",
    "Written",
]

CUT_SHORT: Final = "cut short"
"""The text of the last event where a session did not come to its end."""
Place = Annotated[int, msgspec.Meta(ge=0)]
"""A test's place in the order, from 0."""


class _Event(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The base of all events."""


class Collected(_Event, frozen=True, tag=1):
    """The runner has collected.

    :ivar seconds: what that took. :ivar root: the project's folder there.
    """

    seconds: float
    root: plain.Text


class Wants(_Event, frozen=True, tag=2):
    """The runner has no test by these ids and asks for their parameter values."""

    items: list[Place]


class Started(_Event, frozen=True, tag=3):
    """A test begins."""

    item: Place


class Section(_Event, frozen=True, tag=4):
    """A piece of captured output, sent once; reports refer to it by ``index``. ``last`` ends it."""

    item: Place
    index: Place
    name: plain.Text
    text: plain.Text
    last: bool = True


class Report(_Event, frozen=True, tag=5):
    """One report of pytest, of one phase of one test; see :mod:`packing`."""

    item: Place
    when: plain.Text | None
    outcome: plain.Text
    duration: float
    start: float | None
    stop: float | None
    keywords: list[plain.Text] | None
    sections: list[Place]
    open: dict[str, Any]


class Finished(_Event, frozen=True, tag=6):
    """A test has ended, and everything it had to say has been sent."""

    item: Place


class Warned(_Event, frozen=True, tag=7):
    """A warning that pytest recorded; ``item`` is -1 where it belongs to no test."""

    item: int
    when: str
    category: str
    text: plain.Text
    path: plain.Text
    lineno: int
    line: plain.Text | None
    location: tuple[plain.Text, int, plain.Text] | None


class Live(_Event, frozen=True, tag=8):
    """Output that is shown as it comes: bytes of stream 1 (stdout) or 2 (stderr)."""

    stream: int
    data: bytes


class Log(_Event, frozen=True, tag=9):
    """A record of the logging module, formatted down to its message."""

    name: plain.Text
    level: int
    text: plain.Text
    path: plain.Text
    lineno: int
    function: plain.Text
    created: float


class Artifact(_Event, frozen=True, tag=10):
    """A piece of a file that a test left in its ``artifacts_dir``; ``last`` ends the file.

    :ivar first: whether the file begins with it, whatever has come of it before.
    :ivar left: how many bytes are still to come after it, of this file and those that follow.
    """

    item: Place
    name: plain.Text
    data: bytes
    last: bool = True
    first: bool = False
    left: Place = 0


class Dropped(_Event, frozen=True, tag=29):
    """A file that came while the test ran is there no more, or comes again in another form."""

    item: Place
    name: plain.Text


class Covered(_Event, frozen=True, tag=30):
    """What has run of a file: numbers of lines, or pairs of them where ``arcs`` says so.

    There are none where the file is one of those to be measured, and nothing of it has run.
    """

    path: plain.Text
    numbers: list[int]
    arcs: bool


class Written(_Event, frozen=True, tag=36):
    """A piece of a file that a plugin has left in a folder which the user has named for it.

    :ivar option: that of the command line, as plugins know it. :ivar last: whether the file ends
        with it; ``first``, whether it begins.
    """

    option: plain.Text
    name: plain.Text
    data: bytes
    last: bool = True
    first: bool = False


class CollectFailed(_Event, frozen=True, tag=11):
    """A file or folder could not be collected there: the node's id and the text of the error.

    :ivar crash: path, line and message of the error, where it has any; those of a skip.
    :ivar skipped: whether it was skipped, as a folder is whose conftest says so.
    """

    nodeid: plain.Text
    text: plain.Text
    crash: tuple[plain.Text, int, plain.Text] | None = None
    skipped: bool = False


class FileTree(_Event, frozen=True, tag=31):
    """A piece of what was collected of one file, see ``nodes``; ``last`` ends the tree.

    :ivar path: the file's, seen from the project's root. :ivar number: the ordinal of the collector
        among those that the file has.
    """

    path: plain.Text
    number: Place
    data: bytes
    last: bool = True


class NotFound(_Event, frozen=True, tag=12):
    """The far side can't make this test, and says why."""

    item: Place
    text: plain.Text


class StretchEnded(_Event, frozen=True, tag=13):
    """The runner has done with the stretch; ``reason`` says why, where it stopped early."""

    reason: plain.Text = b""


class Crashed(_Event, frozen=True, tag=14):
    """The runner ended while a test ran: how, with which stacks, and with which output.

    :ivar timeout: whether it was ended for having reached a limit.
    :ivar before: the places of tests that ran in the same process before, where memory may be the
        cause and one of them the culprit.
    :ivar again: whether the test is run again, as was asked for.
    """

    item: Place
    cause: str
    stack: plain.Text
    stdout: plain.Text
    stderr: plain.Text
    timeout: bool = False
    before: list[Place] = []
    again: bool = False


class StartFailed(_Event, frozen=True, tag=15):
    """No test can run there.

    :ivar usage: whether that is the user's to mend, such as a conftest that does not load.
    """

    text: plain.Text
    usage: bool = False


class SkippedThere(_Event, frozen=True, tag=21):
    """The far side skipped the whole file of this test: where, and for which reason."""

    item: Place
    path: plain.Text
    lineno: int
    reason: plain.Text


class Junit(_Event, frozen=True, tag=22):
    """An attribute of a test's element in the junit file; for ``item`` -1 the suite's property."""

    item: int
    name: plain.Text
    value: plain.Text


class SessionEnded(_Event, frozen=True, tag=23):
    """The far session ended in another way than its tests did: a hook at its end failed, say.

    :ivar status: its exit status. :ivar text: why, as far as that is known.
    """

    status: int
    text: plain.Text


class Waiting(_Event, frozen=True, tag=24):
    """The cards are not free: who holds them. An empty text ends the wait."""

    text: plain.Text


class Leased(_Event, frozen=True, tag=25):
    """The tests that follow have these cards to themselves.

    :ivar cards: in words, as ``NVIDIA H200 (GPU-5d0c...)``. :ivar seconds: how long that took.
    """

    cards: list[plain.Text]
    seconds: float


class Memory(_Event, frozen=True, tag=26):
    """What a test did with the memory of its cards, all of them together, in bytes.

    :ivar allocated: the most that torch's allocator had handed out at once.
    :ivar reserved: the most that it had taken from the cards.
    :ivar leaked: what it has handed out more at the end than it had before the test.
    :ivar free: what the cards have left at the end. :ivar total: what they have.
    """

    item: Place
    allocated: Place
    reserved: Place
    leaked: int
    free: Place
    total: Place


class Phases(_Event, frozen=True, tag=27):
    """How long parts of the start took there, in seconds, in order."""

    parts: list[tuple[str, float]]


class Withdrawn(_Event, frozen=True, tag=28):
    """The stretch from ``first`` up to, not including, ``last`` was taken back before it began."""

    first: Place
    last: Place


class Exited(_Event, frozen=True, tag=16):
    """A test ended the session, as ``pytest.exit`` (with its status) or an interrupt does.

    So does what a file does while it is imported, or a hook.

    :ivar where: path and line of an interrupt.
    """

    text: plain.Text
    status: int | None
    interrupt: bool = False
    where: tuple[plain.Text, int] | None = None


class Need(_Event, frozen=True, tag=17):
    """The far side lacks the content of these digests."""

    digests: list[str]


class Note(_Event, frozen=True, tag=18):
    """A line for the user that belongs to no report."""

    text: plain.Text


class Attached(_Event, frozen=True, tag=33):
    """A debugger wants the user's terminal; ``item`` is -1 where that is of no test."""

    item: int


SHOWN: Final = b"\0remotegpu: that was all\0"
"""A runner writes it on its pseudo-terminal, which takes its time, behind all that its debugger has
shown there; it does not travel."""


class Screen(_Event, frozen=True, tag=34):
    """Bytes that the debugger shows there."""

    data: bytes


class Detached(_Event, frozen=True, tag=35):
    """The debugger has done with the terminal."""


class Ended(_Event, frozen=True, tag=20):
    """The last event of a stream: nothing runs there any more.

    :ivar text: :data:`CUT_SHORT` where a session was told to stop and did not come to its end.
    """

    text: plain.Text = b""


Event = (
    Collected
    | Wants
    | Started
    | Section
    | SessionEnded
    | Report
    | Finished
    | Warned
    | Live
    | Log
    | Artifact
    | Attached
    | Dropped
    | Covered
    | CollectFailed
    | FileTree
    | NotFound
    | SkippedThere
    | StretchEnded
    | Crashed
    | Detached
    | StartFailed
    | Exited
    | Has
    | Junit
    | Leased
    | Memory
    | Need
    | Note
    | Phases
    | Screen
    | Waiting
    | Withdrawn
    | Written
    | Ended
)
"""All that may come back; a stream that holds anything else is not believed."""

OVER: Final = -2
"""``Batch.current`` of the last batch of a session that ended in good order."""
FAILED: Final = -3
"""The same of a session that could not begin: a usage error, or a conftest that does not load."""
LEFT: Final = -4
"""The same of the very last batch: exit functions have run, only the kernel has work left."""


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Events on their way from a runner to its supervisor, with what the supervisor must know.

    :ivar count: how many they are. :ivar current: the place of the test that runs after them; -1
        for none, or ``OVER``, ``FAILED`` or ``LEFT``.
    :ivar following: the place of the first test that has not begun. :ivar events: them, encoded.
    :ivar failures: failed reports so far, as pytest counts them.
    :ivar stretch_ended: whether a stretch ends with them. :ivar waits: whether the runner waits for
        ``Shown`` before it goes on.
    :ivar spoilt: whether no further test may run in this process: it ends, another takes over.
    :ivar collecting: the id of the file that is imported after these events; empty for none.
    :ivar debugs: whether a debugger has the terminal after them.
    :ivar attempt: how often that test has been begun in this process, 0 before it is announced.
    """

    count: int
    current: int
    following: int
    failures: int
    stretch_ended: bool
    events: msgspec.Raw
    waits: bool = False
    spoilt: bool = False
    collecting: bytes = b""
    debugs: bool = False
    attempt: Place = 0

    @property
    def is_awaited(self) -> bool:
        """Whether the runner says nothing more before it has an answer, or says the last of it."""
        return self.waits or self.stretch_ended or self.current < -1
