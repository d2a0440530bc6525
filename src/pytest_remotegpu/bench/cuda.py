"""Times on a card, by CUDA's events: calls as they are, and the replay of CUDA graphs.

Knows torch, inside functions only; no pytest. The card's clocks are left as they are.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_remotegpu.bench.timing import Call, CaptureError, Mode, Rotating, order
from pytest_remotegpu.errors import UsageError

__all__ = ["CudaTimer", "cache_bytes"]

LEAST_FLUSH: Final = 256 * 2**20
"""Bytes that are written to clear the L2 cache, or twice its size where that is more."""
REPLAY: Final = 4.0
"""Milliseconds that one replay lasts: beside it the start of the replay is nothing."""
MOST_CALLS: Final = 1000
"""Calls in one graph."""
WARM: Final = 3
"""Calls on the stream of the capture before it: handles and workspaces are made per stream."""
ESTIMATE: Final = 5
"""Calls from whose time the number of calls in a graph is told."""
TOO_FEW: Final = 2
AHEAD: Final = 100_000
"""Cycles for which the card is kept busy before a call with a warm cache: 50 us at 2 GHz."""
EMPTY: Final = "The CUDA Graph is empty"


def cache_bytes(device: Any) -> int:
    """Give the size of a card's L2 cache."""
    import torch  # noqa: PLC0415 -- only a benchmark on a card pays for it

    return int(torch.cuda.get_device_properties(device).L2_cache_size)


@dataclass(slots=True)
class _Captured:
    """A graph that has the same call several times.

    :ivar call: that one. :ivar graph: a ``torch.cuda.CUDAGraph``. :ivar count: calls in it.
    """

    call: Call
    graph: Any
    count: int

    def __call__(self) -> object:
        """Replay it."""
        return self.graph.replay()


class CudaTimer:
    """Times calls on one card.

    Eager: events around each call, all rounds queued before one wait. Where the host takes longer
    to issue a call than the card to run it, the call lasts as long as that: what is queued before
    (the flush) would hide it.
    Graph: events around a replay of many calls, as ``triton.testing.do_bench_cudagraph`` has it.

    :ivar modes: both of a card.
    :ivar device: a ``torch.device``.
    :ivar flush: whether the L2 cache is cleared before each eager call, outside of its time. Not in
        a graph: give calls that rotate through copies of their inputs.
    """

    modes: tuple[Mode, ...] = (Mode.EAGER, Mode.GRAPH)

    def __init__(
        self,
        device: Any = None,
        flush: bool = True,  # noqa: FBT001, FBT002 -- part of the agreed signature
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Take a card.

        :param device: a ``torch.device`` or its name; the current one without it.
        :param clock: gives seconds, for the host's time.
        :raises UsageError: where it is no CUDA device, or there is none.
        """
        import torch  # noqa: PLC0415 -- as above

        if not torch.cuda.is_available():
            raise UsageError("torch sees no CUDA card", fix="use WallTimer on a CPU")
        device = torch.device("cuda" if device is None else device)
        if device.type != "cuda":
            raise UsageError(f"{device} is no CUDA device", fix="use WallTimer on a CPU")
        index = torch.cuda.current_device() if device.index is None else device.index
        self.device = torch.device("cuda", index)
        self.flush = flush
        self._clock = clock
        self._buffer: Any = None

    def settle(self) -> None:
        """Wait until the card is idle."""
        import torch  # noqa: PLC0415 -- as above

        torch.cuda.synchronize(self.device)

    # eager

    def rounds(self, calls: Sequence[Call], count: int, mode: Mode) -> list[list[float]]:
        """Time all calls in turns; milliseconds of one call, by call and round."""
        if mode is Mode.GRAPH:
            return self._replays(calls, count)
        spans = self.spans(calls, count)
        issued = self.issue(calls, count)
        return [list(map(max, *pair)) for pair in zip(spans, issued, strict=True)]

    def spans(self, calls: Sequence[Call], count: int) -> list[list[float]]:
        """Time the card alone, between events; the cache is cleared before each call, or is warm.

        :return: milliseconds, by call and round.
        """
        return self._between(calls, count, clear=self.flush)

    def issue(self, calls: Sequence[Call], count: int) -> list[list[float]]:
        """Time the host alone: how long it takes to issue a call to an idle card.

        :return: milliseconds, by call and round.
        """
        found: list[list[float]] = [[] for _ in calls]
        with self._on_card():
            for turn in range(count):
                for place in order(len(calls), turn):
                    call = calls[place]
                    self.settle()
                    begun = self._clock()
                    call()
                    found[place].append((self._clock() - begun) * 1000)
            self.settle()
        return found

    def _between(self, calls: Sequence[Call], count: int, *, clear: bool) -> list[list[float]]:
        """Time between events; the card works through all of it without a gap for a wait.

        Before each call it has something to do, so that it does not wait for the host in between.
        """
        with self._on_card():
            begins, ends = self._events(len(calls), count), self._events(len(calls), count)
            before = self._clear if clear else _idle
            self.settle()
            for turn in range(count):
                for place in order(len(calls), turn):
                    before()
                    begins[place][turn].record()
                    calls[place]()
                    ends[place][turn].record()
            self.settle()
        return [
            [begin.elapsed_time(end) for begin, end in zip(*pair, strict=True)]
            for pair in zip(begins, ends, strict=True)
        ]

    def _events(self, calls: int, count: int) -> list[list[Any]]:
        import torch  # noqa: PLC0415 -- as above

        return [[torch.cuda.Event(enable_timing=True) for _ in range(count)] for _ in range(calls)]

    def _clear(self) -> None:
        import torch  # noqa: PLC0415 -- as above

        if self._buffer is None:
            size = max(LEAST_FLUSH, 2 * cache_bytes(self.device))
            self._buffer = torch.empty(size // 4, dtype=torch.int32, device=self.device)
        self._buffer.zero_()

    @contextlib.contextmanager
    def _on_card(self) -> Iterator[None]:
        import torch  # noqa: PLC0415 -- as above

        with torch.cuda.device(self.device):
            yield

    # graphs

    def prepare(self, call: Call, mode: Mode) -> Call:
        """Capture a call, several times in one graph; an eager one stays what it is.

        :raises CaptureError: with the reason where that is not possible.
        """
        if mode is not Mode.GRAPH:
            return call
        import torch  # noqa: PLC0415 -- as above

        with self._on_card():
            stream = torch.cuda.Stream(self.device)
            stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(stream):
                step = len(call.calls) if isinstance(call, Rotating) else 1
                _rehearsed(call, max(WARM, step))  # each copy has to have run on this stream
                count = _calls_for(self._once(call), step)
                ready = _captured(call, count, stream)
                better = _calls_for(self._once(ready) / count, step)
                if better > TOO_FEW * count:  # the host had kept the card waiting
                    ready = _captured(call, better, stream)
            self.settle()
        return ready

    def _once(self, call: Call) -> float:
        """Estimate the milliseconds of a call."""
        spans = self._between([call], ESTIMATE, clear=False)
        return sorted(spans[0])[ESTIMATE // 2]

    def _replays(self, calls: Sequence[Call], count: int) -> list[list[float]]:
        graphs = []
        for call in calls:
            if not isinstance(call, _Captured):
                raise UsageError(f"{call!r} is not captured", fix="let prepare() do that first")
            graphs.append(call)
        spans = self._between(graphs, count, clear=False)
        return [
            [span / graph.count for span in one] for graph, one in zip(graphs, spans, strict=True)
        ]


def _idle() -> None:
    """Keep the card busy for some microseconds, with nothing that touches its cache."""
    import torch  # noqa: PLC0415 -- as above

    torch.cuda._sleep(AHEAD)  # noqa: SLF001 -- torch has no other name for it


def _rehearsed(call: Call, count: int) -> None:
    """Make calls as a capture will; what waits for the card is found out without a capture.

    :raises CaptureError: where one of them waits.
    """
    import torch  # noqa: PLC0415 -- as above

    call()
    was = torch.cuda.get_sync_debug_mode()
    _set_sync_debug_mode("error")
    try:
        for _ in range(count - 1):
            call()
    except RuntimeError as error:
        raise _refused(error) from error
    finally:
        _set_sync_debug_mode(was)


def _set_sync_debug_mode(mode: Any) -> None:
    import torch  # noqa: PLC0415 -- as above

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode")
        torch.cuda.set_sync_debug_mode(mode)


def _calls_for(once: float, step: int) -> int:
    """Say how many calls make up a replay.

    :param once: milliseconds of one. :param step: of which it has to be a multiple.
    """
    wanted = MOST_CALLS if once * MOST_CALLS <= REPLAY else REPLAY / once
    return step * max(1, round(wanted / step))


def _captured(call: Call, count: int, stream: Any) -> _Captured:
    """Capture calls on a stream of their own, on which they have run before.

    :raises CaptureError: where one of them can't be captured.
    """
    import torch  # noqa: PLC0415 -- as above

    graph = torch.cuda.CUDAGraph()
    stream.synchronize()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=EMPTY)
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                for _ in range(count):
                    call()
    except Exception as error:
        _heal()
        raise _refused(error) from error
    return _Captured(call, graph, count)


def _heal() -> None:
    """Capture next to nothing, with success.

    A capture that can't be ended leaves torch's random numbers as if it went on, and whoever draws
    some gets an error. The end of the next one puts that right.
    """
    import torch  # noqa: PLC0415 -- as above

    torch.cuda.synchronize()
    something = torch.zeros(1, device="cuda")
    with contextlib.suppress(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        something.zero_()


def _refused(error: BaseException) -> CaptureError:
    return CaptureError(
        f"it can't be captured as a CUDA graph: {_reason(error)}",
        fix="time it eagerly, or take waits, copies to the host and changing shapes out of it",
    )


def _reason(error: BaseException) -> str:
    """Give the first line of the error that came first: the end of a capture adds its own."""
    seen = [error]
    while (before := seen[-1].__context__) is not None and before not in seen:
        seen.append(before)
    first = seen[-1]
    lines = str(first).strip().splitlines()
    if lines and lines[0].startswith(EMPTY):
        return "it does nothing on the card"
    return f"{type(first).__name__}: {lines[0]}" if lines else type(first).__name__
