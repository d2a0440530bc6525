"""What a card can do at most: measured on it, and worked out from its data sheet.

Knows torch, inside functions only; no pytest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from pytest_remotegpu import cards
from pytest_remotegpu.bench.cuda import CudaTimer
from pytest_remotegpu.bench.timing import Call, Mode

__all__ = ["DTYPES", "Ceilings", "of_card", "peak_bandwidth", "peak_flops"]

DTYPES: Final = ("float64", "float32", "float16", "bfloat16")
"""Whose products of matrices are measured."""
COPIED: Final = 2**30
"""Bytes of the buffer that is copied, read and written; many times any L2 cache."""
SHARE: Final = 16
"""Of the free memory at most one such part is used for a buffer."""
SIZE: Final = 8192
"""Rows of the square matrices; of 2048 for float64."""
ROUNDS: Final = 10
MEASURES: Final = 2
"""Times that it is measured; the second one finds the clocks up."""

# Operations of a multiprocessor in a clock, for dense products with half-precision inputs, and for
# single precision without tensor cores: NVIDIA's white papers of the architectures.
HALF: Final = {
    (7, 0): 1024, (7, 5): 1024, (8, 0): 2048, (8, 6): 1024, (8, 7): 1024, (8, 9): 1024,
    (9, 0): 4096, (10, 0): 8192, (10, 3): 8192, (12, 0): 1024,
}  # fmt: skip
DOUBLE: Final = {(7, 0): 64, (8, 0): 128, (9, 0): 256, (10, 0): 128}
SINGLE: Final = {(7, 0): 128, (7, 5): 128, (8, 0): 128}
TF32_SHARE: Final = 2
"""Products with TF32 have half the speed of those with half precision, from Ampere on."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What was measured on a card.

    :ivar bandwidth: bytes a second: the best of a copy, which reads and writes, a sum, which reads,
        and a filling, which writes.
    :ivar by: which of these it was.
    :ivar flops: operations a second of a product of matrices; ``None`` without a dtype.
    :ivar dtype: of that product, with ``by TF32`` where torch was set so.
    :ivar most_bandwidth: what no kernel can exceed, from clock and width of the memory bus, or
        from what was measured where that is more; bytes a second.
    :ivar most_flops: the same of operations a second.
    """

    bandwidth: float
    by: str
    flops: float | None
    dtype: str
    most_bandwidth: float
    most_flops: float | None


def peak_bandwidth(limits: cards.Limits) -> float:
    """Work out the bytes a second of a memory bus: two transfers in a clock; 0 if not known."""
    if not limits.memory_mhz or not limits.bus_bits:
        return 0.0
    return 2 * limits.memory_mhz * 1e6 * limits.bus_bits / 8


def peak_flops(
    capability: tuple[int, int], multiprocessors: int, limits: cards.Limits, dtype: str
) -> float:
    """Work out the operations a second of a dense product at the highest clock; 0 if not known."""
    half = HALF.get(capability)
    if not limits.sm_mhz or half is None:
        return 0.0
    single = SINGLE.get(capability, 256)
    in_a_clock = {
        "float16": half,
        "bfloat16": half,
        "float32": max(single, half // TF32_SHARE if capability >= (8, 0) else 0),
        "float64": DOUBLE.get(capability, single // 32),
    }.get(dtype, 0)
    return in_a_clock * multiprocessors * limits.sm_mhz * 1e6


def of_card(timer: CudaTimer, uuid: str, dtype: str) -> Ceilings:
    """Measure a card, once in a process for each dtype.

    :param uuid: of the card, for what its memory could do. :param dtype: one of :data:`DTYPES`;
        of others no operations are known.
    """
    import torch  # noqa: PLC0415 -- only a benchmark on a card pays for it

    index = timer.device.index
    known = torch.cuda.get_device_properties(index)
    limits = cards.limits(uuid)
    bandwidth, by = _bandwidth(index)
    torch.cuda.empty_cache()  # what was measured with is nobody's any more
    most = max(bandwidth, peak_bandwidth(limits))
    if dtype not in DTYPES:
        return Ceilings(bandwidth, by, None, "", most, None)
    tf32 = dtype == "float32" and torch.backends.cuda.matmul.allow_tf32
    flops = _flops(index, dtype, tf32)
    torch.cuda.empty_cache()
    peak = peak_flops((known.major, known.minor), known.multi_processor_count, limits, dtype)
    name = f"{dtype} by TF32" if tf32 else dtype
    return Ceilings(bandwidth, by, flops, name, most, max(flops, peak))


def _fastest(timer: CudaTimer, call: Call) -> float:
    """Give the seconds of the fastest of several calls."""
    call()
    times = [min(timer.rounds([call], ROUNDS, Mode.EAGER)[0]) for _ in range(MEASURES)]
    return min(times) / 1000


def _bare(index: int) -> CudaTimer:
    return CudaTimer(f"cuda:{index}", flush=False)


@cache
def _bandwidth(index: int) -> tuple[float, str]:
    import torch  # noqa: PLC0415 -- as above

    timer = _bare(index)
    free, _all = torch.cuda.mem_get_info(index)
    count = min(COPIED, free // SHARE) // 4
    source = torch.zeros(count, dtype=torch.float32, device=timer.device)
    target = torch.empty_like(source)
    size = 4 * count
    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "copy": (2 * size, lambda: target.copy_(source)),
        "read": (size, source.sum),
        "write": (size, target.zero_),
    }
    found = {name: moved / _fastest(timer, call) for name, (moved, call) in ways.items()}
    by = max(found, key=lambda name: found[name])
    return found[by], by


@cache
def _flops(index: int, dtype: str, tf32: bool) -> float:  # noqa: FBT001, ARG001 -- a key of the cache
    import torch  # noqa: PLC0415 -- as above

    timer = _bare(index)
    size = SIZE // 4 if dtype == "float64" else SIZE
    with torch.no_grad():
        one, other = (
            torch.randn(size, size, device=timer.device).to(getattr(torch, dtype)) for _ in range(2)
        )
        product = torch.empty_like(one)
        return 2 * size**3 / _fastest(timer, lambda: torch.mm(one, other, out=product))
