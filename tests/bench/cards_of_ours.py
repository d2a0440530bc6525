"""A card that is not there, with a torch that drives it: a host and a card, each with its clock.

The host issues work and goes on; the card does it in order; events tell when the card came by. As
far as timers ask, it does what torch and CUDA do. Knows nothing of the package.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

__all__ = ["LAUNCH", "Card", "torch_of"]

LAUNCH = 5e-6
"""Seconds that the host takes to issue one piece of work."""
WRITES = 4e12
"""Bytes a second that a filling does."""


@dataclass
class Card:
    """A card and its host.

    :ivar now: seconds on the host's clock. :ivar until: when the card has done all that it has.
    :ivar cold: whether its cache holds nothing that anybody wants.
    :ivar capturing: what a capture has recorded; ``None`` where there is none.
    :ivar flushes: how often the cache was cleared. :ivar healthy: whether the last capture ended.
    :ivar sync: what becomes of waits, as torch's debug mode has it.
    """

    now: float = 0.0
    until: float = 0.0
    cold: bool = False
    capturing: list[float] | None = None
    flushes: int = 0
    healthy: bool = True
    sync: Any = 0
    log: list[str] = field(default_factory=list)

    def clock(self) -> float:
        """Read the host's clock."""
        return self.now

    def launch(self, seconds: float) -> None:
        """Let the host issue work."""
        self.now += LAUNCH
        if self.capturing is not None:
            self.capturing.append(seconds)
            return
        self.until = max(self.until, self.now) + seconds

    def item(self) -> None:
        """Let the host wait for the card as torch's own operations do."""
        if self.sync == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        self.wait()

    def wait(self) -> None:
        """Let the host wait for the card."""
        if self.capturing is not None:
            raise RuntimeError("operation not permitted when stream is capturing\nmore words")
        self.now = max(self.now, self.until)

    def kernel(
        self,
        seconds: float,
        *,
        host: float = 0.0,
        cold: float = 0.0,
        waits: str = "",
        name: str = "",
    ) -> Callable[[], None]:
        """Give a call that does so much on the card.

        :param host: seconds of Python around it. :param cold: more seconds with a cold cache.
        :param waits: how it waits for the card: by an ``item``, or by a ``wait`` of its own.
        """

        def call() -> None:
            self.log.append(name)
            self.now += host
            self.launch(seconds + (cold if self.cold else 0))
            self.cold = False
            if waits:
                getattr(self, waits)()

        return call


class _Event:
    def __init__(self, card: Card) -> None:
        self._card = card
        self.at = 0.0

    def record(self) -> None:
        self.at = max(self._card.until, self._card.now)

    def elapsed_time(self, other: _Event) -> float:
        return (other.at - self.at) * 1000


class _Graph:
    def __init__(self, card: Card) -> None:
        self._card = card
        self.work: list[float] = []

    def replay(self) -> None:
        self._card.launch(sum(self.work))


class _Buffer:
    def __init__(self, card: Card, size: int) -> None:
        self._card, self.size = card, size

    def zero_(self) -> None:
        self._card.launch(self.size / WRITES)
        self._card.cold = True
        self._card.flushes += 1


class _Device:
    def __init__(self, name: str, index: int | None = None) -> None:
        self.type, _, number = str(name).partition(":")
        self.index = int(number) if number else index

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


def torch_of(card: Card, *, cache: int = 50 * 2**20, uuid: str = "") -> Any:
    """Give a torch that has this card."""
    stream = SimpleNamespace(wait_stream=lambda _other: None, synchronize=card.wait)

    @contextlib.contextmanager
    def nothing(*_args: Any) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def capture(graph: _Graph, **_how: Any) -> Iterator[None]:
        card.capturing = graph.work
        try:
            yield
        except RuntimeError as error:
            card.healthy = False
            raise RuntimeError("the capture was invalidated") from error
        finally:
            card.capturing = None
        card.healthy = True
        if not graph.work:
            warnings.warn("The CUDA Graph is empty. This usually means", UserWarning, stacklevel=1)

    properties = SimpleNamespace(
        L2_cache_size=cache, major=9, minor=0, multi_processor_count=132, uuid=uuid
    )

    def debug(mode: Any) -> None:
        warnings.warn("Synchronization debug mode is a prototype", UserWarning, stacklevel=1)
        card.sync = mode

    cuda = SimpleNamespace(
        _sleep=lambda cycles: card.launch(cycles / 2e9),
        get_sync_debug_mode=lambda: card.sync,
        set_sync_debug_mode=debug,
        CUDAGraph=lambda: _Graph(card),
        Event=lambda **_how: _Event(card),
        Stream=lambda *_args: stream,
        current_device=lambda: 0,
        current_stream=lambda *_args: stream,
        device=nothing,
        get_device_name=lambda *_args: "NVIDIA X1",
        get_device_properties=lambda *_args: properties,
        graph=capture,
        is_available=lambda: True,
        is_initialized=lambda: True,
        mem_get_info=lambda *_args: (2**36, 2**37),
        stream=nothing,
        synchronize=lambda *_args: card.wait(),
    )
    return SimpleNamespace(
        Tensor=type("Tensor", (), {}),
        __version__="2.11.0",
        cuda=cuda,
        device=lambda name, index=None: name if isinstance(name, _Device) else _Device(name, index),
        empty=lambda count, **_how: _Buffer(card, 4 * count),
        get_num_threads=lambda: 2,
        int32="int32",
        zeros=lambda count, **_how: _Buffer(card, 4 * count),
        version=SimpleNamespace(cuda="13.0"),
    )
