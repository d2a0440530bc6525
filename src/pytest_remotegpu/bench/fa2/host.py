"""This host for a sweep: its card or CPU, who holds the clock, and what a document tells of both.

Knows torch, inside functions; what a sweep is, it does not.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pytest_remotegpu import cards
from pytest_remotegpu.bench import states, surroundings
from pytest_remotegpu.bench.cuda import CudaTimer, cache_bytes
from pytest_remotegpu.bench.fa2 import kernels, limits, measured
from pytest_remotegpu.bench.timing import Timer
from pytest_remotegpu.bench.wall import WallTimer
from pytest_remotegpu.errors import UsageError

__all__ = ["NO_CARD", "Host", "this"]

NO_CARD: Final = (
    "no card was used: all times are those of a CPU, and nothing is recommended by them"
)
PACKAGE: Final = "pytest-remotegpu"

Found = TypeVar("Found")


@dataclass(slots=True)
class Host:
    """Where a sweep runs.

    :ivar device: the card that torch takes, or the CPU. :ivar timer: holds the clock.
    :ivar look: names kernels; ``None`` on a CPU. :ivar cache: bytes of the card's; 0 on a CPU.
    :ivar uuid: of the card; empty on a CPU. :ivar place: torch's name of it, such as ``cuda:0``.
    :ivar states: what was seen of the card, as plain data, in order.
    """

    device: limits.Device
    timer: Timer
    look: Callable[[Callable[[], Any]], tuple[str, ...]] | None = None
    cache: int = 0
    uuid: str = ""
    place: str = "cpu"
    states: list[Mapping[str, Any]] = field(default_factory=list)

    def told(self) -> measured.Device:
        """Give the machine in the words of a document."""
        import torch  # noqa: PLC0415 -- late

        card = self.device.is_card
        return measured.Device(
            cuda_available=card,
            device_name=self.device.name if card else "",
            torch_version=str(torch.__version__),
            cuda_version=str(torch.version.cuda or ""),
            flash_available=card and not limits.refusal(self.device),
        )

    def environment(self, dtypes: Sequence[str]) -> dict[str, Any]:
        """Give what times depend on, as plain data."""
        import torch  # noqa: PLC0415 -- late

        dtype = ", ".join(dtypes)
        more = {"package": importlib.metadata.version(PACKAGE)}
        if not self.device.is_card:
            return {**surroundings.of_host(dtype), **more}
        return {
            **surroundings.of_card(torch.cuda.current_device(), self.uuid, dtype),
            **more,
            "card": self.device.name,
            "capability": f"{self.device.capability:.1f}",
            "l2": "cold",
        }

    def watch(self, measure: Callable[[], Found]) -> tuple[Found, Sequence[str]]:
        """Measure, and look at the card before and after.

        :return: what was measured, and what held the card back so that no time counts.
        """
        if not self.uuid:
            return measure(), ()
        before = cards.reading(self.uuid)
        found = measure()
        state = states.look(self.uuid, before)
        self.states.append(state.plain())
        return found, state.throttled


def this() -> Host:
    """Look at this host: torch's current card, or the CPU where torch has none.

    :raises UsageError: where there is no torch.
    """
    try:
        import torch  # noqa: PLC0415 -- late
    except ImportError as error:
        raise UsageError(
            f"torch can't be imported where the sweep runs: {error}",
            fix="install it there, 2.11 or newer for all columns",
        ) from error
    if not torch.cuda.is_available():
        name = f"a CPU ({platform.machine()})"
        return Host(limits.Device("cpu", name), WallTimer())
    index = torch.cuda.current_device()
    about = torch.cuda.get_device_properties(index)
    capability = float(f"{about.major}.{about.minor}")
    return Host(
        limits.Device("cuda", str(about.name), capability, int(about.total_memory)),
        CudaTimer(torch.device("cuda", index)),
        kernels.seen,
        cache_bytes(index),
        surroundings.uuid_of(index),
        f"cuda:{index}",
    )
