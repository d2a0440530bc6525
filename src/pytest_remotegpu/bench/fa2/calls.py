"""What is timed: a column's call on prepared inputs, forward, or backward alone.

Backward alone is timed on a graph that is kept: the forward pass has run before, and each call
computes the gradients of query, key and value anew and drops them. Nothing of the forward pass is
in it, and nothing has to be subtracted. Autograd runs a gradient on the stream that its forward
pass ran on, so each stream gets a graph of its own: what captures a call runs it before on the
stream of the capture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.bench.fa2 import sizes, tensors
from pytest_remotegpu.bench.fa2.rows import Direction, Problem
from pytest_remotegpu.bench.fa2.tensors import Inputs
from pytest_remotegpu.bench.fa2.ways import Way

if TYPE_CHECKING:
    import torch

__all__ = ["Backward", "Forward", "Watched", "copies", "make"]

MOST_COPIES: Final = 512
"""More are not made; smaller inputs than that stay in the cache in part."""


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward pass as inference has it: no graph is kept."""

    way: Way
    inputs: Inputs

    def __call__(self) -> torch.Tensor:
        """Compute the output."""
        return self.way(*self.inputs.three)


@dataclass(slots=True)
class Backward:
    """The gradients of one forward pass, again and again."""

    way: Way
    inputs: Inputs
    _kept: dict[int, tuple[torch.Tensor, Sequence[torch.Tensor]]] = field(
        default_factory=dict, init=False
    )

    def __call__(self) -> Sequence[torch.Tensor]:
        """Compute the gradients.

        :raises RuntimeError: where a stream is captured on which it never ran.
        """
        import torch  # noqa: PLC0415 -- late

        kept = self._kept.get(_stream())
        if kept is None:
            kept = self._kept[_stream()] = self._forward()
        output, three = kept
        gradients: Sequence[torch.Tensor] = torch.autograd.grad(
            output, three, self.inputs.incoming, retain_graph=True
        )
        return gradients

    def _forward(self) -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
        """Make a graph on the current stream, of leaves that no other stream has seen.

        A leaf stays with the stream on which it was first used, and a gradient that comes from
        another one waits for that, which no capture survives. The leaves share their memory.
        """
        import torch  # noqa: PLC0415 -- late

        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "a gradient is captured on a stream on which its forward pass never ran: call it "
                "there once before"
            )
        three = [one.detach().requires_grad_() for one in self.inputs.three]
        return self.way(*three), three


def _stream() -> int:
    import torch  # noqa: PLC0415 -- late

    return int(torch.cuda.current_stream().cuda_stream) if torch.cuda.is_initialized() else 0


@dataclass(slots=True)
class Watched:
    """A call that keeps what it raised, so that it is known whose error ended a measurement.

    :ivar raised: the first error; shared by all copies of a column's call.
    """

    call: Callable[[], object]
    raised: list[BaseException]

    def __call__(self) -> object:
        """Call it.

        :raises BaseException: what it raises.
        """
        try:
            return self.call()
        except BaseException as error:
            self.raised.append(error)
            raise


def copies(problem: Problem, cache: int) -> int:
    """Say how many copies of the inputs take turns, so that no cache holds the next one's.

    :param cache: bytes; twice as many are gone through before a copy's turn comes again.
    """
    return min(MOST_COPIES, 1 + 2 * cache // sizes.inputs(problem)) if cache else 1


def make(problem: Problem, device: Any, count: int, *, seed: int) -> list[Inputs]:
    """Make copies of a problem's inputs."""
    first = tensors.make(problem, device, seed=seed)
    return [first, *(first.copied() for _ in range(count - 1))]


def of(problem: Problem, way: Way, inputs: Inputs) -> Callable[[], object]:
    """Give a column's call on one set of inputs."""
    return (
        Backward(way, inputs) if problem.direction is Direction.BACKWARD else Forward(way, inputs)
    )
