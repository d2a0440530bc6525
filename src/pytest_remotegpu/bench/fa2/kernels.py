"""Which kernels really ran, by torch's profiler, and whether they are those that were asked for.

Asking for a kernel and getting it are two things: a pinned backend that is not there, a mask that
a kernel does not take, a package that falls back. Names are what the card was given, so they are
what a row says; a column whose kernel is not among them has no number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pytest_remotegpu.bench.fa2.rows import Direction

__all__ = ["FAMILIES", "family", "missing", "seen", "short"]

FAMILIES: Final[dict[str, dict[Direction, str]]] = {
    "flash": {Direction.FORWARD: r"flash_fwd", Direction.BACKWARD: r"flash_bwd"},
    "cudnn": {Direction.FORWARD: r"cudnn\w*fprop", Direction.BACKWARD: r"cudnn\w*bprop"},
    "efficient": {Direction.FORWARD: r"fmha_cutlassF", Direction.BACKWARD: r"fmha_cutlassB"},
    "math": {Direction.FORWARD: r"(?i:softmax)", Direction.BACKWARD: r"(?i:softmax)"},
}
"""What names of kernels have in them, by family and direction.

Of an H200 with torch 2.11: ``pytorch_flash::flash_fwd_splitkv_kernel``,
``pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel``,
``cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1``, and
with ``bprop`` its gradient. cuDNN's names have "flash" in them, and are none of FlashAttention's.
"""
NO_KERNEL: Final = re.compile(r"Mem(?:cpy|set)\b", re.ASCII)
LONGEST: Final = 120
"""Characters of a name that are kept."""


def short(name: str) -> str:
    """Give a kernel's name without its return type, arguments and what its templates are given.

    >>> short("void ns::flash_fwd_kernel<ns::Traits<64, 128>, false>(ns::Params)")
    'ns::flash_fwd_kernel'
    """
    text = name.replace("(anonymous namespace)", "anonymous").removeprefix("void ")
    cut = re.split(r"[<(]", text, maxsplit=1)[0].strip()
    return (cut or text)[:LONGEST]


def seen(call: Callable[[], Any]) -> tuple[str, ...]:
    """Run a prepared call and name the kernels that the card was given, each once, in order.

    The call has run before: what its first run compiles or looks for is none of its kernels.
    """
    import torch  # noqa: PLC0415 -- late
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415 -- late

    torch.cuda.synchronize()
    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=both, acc_events=True) as profiler:
        call()
        torch.cuda.synchronize()
    on_card = torch.autograd.DeviceType.CUDA
    names = [event.name for event in profiler.events() if event.device_type == on_card]
    return tuple(dict.fromkeys(short(name) for name in names if not NO_KERNEL.match(name)))


def family(names: Iterable[str], direction: Direction) -> str:
    """Name the family that kernels are of; ``other`` where we know none of them."""
    for name in FAMILIES:
        if not missing(names, name, direction):
            return name
    return "other"


def missing(names: Iterable[str], wanted: str, direction: Direction) -> str:
    """Say that the kernels that were asked for did not run; nothing where they did.

    :param names: of what ran.
    :param wanted: a family, or a part of the names; nothing where any kernel may run.
    """
    found: Sequence[str] = tuple(names)
    known = FAMILIES.get(wanted)
    pattern = known[direction] if known else re.escape(wanted)
    if not wanted or any(re.search(pattern, name) for name in found):
        return ""
    ran = ", ".join(found) or "no kernel at all"
    return f"a {wanted} kernel was asked for, and what ran is {ran}"
