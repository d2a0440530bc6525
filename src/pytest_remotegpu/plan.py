"""What goes where: tests with their shapes become lanes and stretches, and a text that says so.

Values in, values out; knows nothing of pytest, of backends or of processes.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from msgspec import Struct

from pytest_remotegpu import gpu, launchers
from pytest_remotegpu.blotting import blotted
from pytest_remotegpu.config import Setting
from pytest_remotegpu.gpu import Shape

__all__ = ["Stretch", "counts", "describe", "describe_groups", "near_misses", "stretches"]

FOREIGN = (
    "multi_gpu",
    "multigpu",
    "gpu_test",
    "gpu_tests",
    "requires_gpu",
    "cuda",
    "hpc",
)
"""Markers in use elsewhere for what ``gpu`` says here."""


class Stretch(Struct, frozen=True):
    """Neighbouring tests that run in the same place.

    :ivar shape: ``None`` for this side. :ivar first: the place of the first in the whole list.
    :ivar last: the place after the last.
    """

    shape: Shape | None
    first: int
    last: int


def stretches(shapes: Sequence[Shape | None]) -> list[Stretch]:
    """Cut the list of tests, in their order, into stretches."""
    found = []
    first = 0
    for shape, group in groupby(shapes):
        last = first + len(list(group))
        found.append(Stretch(shape, first, last))
        first = last
    return found


def counts(shapes: Iterable[Shape | None]) -> str:
    """Say how many tests go where, such as ``3 tests on 1 GPU, 1 on 2 GPUs, 4 here``."""
    counted = Counter(shapes)
    far = sorted((shape, number) for shape, number in counted.items() if shape is not None)
    parts = [f"{number} on {shape}" for shape, number in far]
    if parts:
        number = far[0][1]
        parts[0] = f"{number} test{'s' if number != 1 else ''} on {far[0][0]}"
    if counted[None] or not parts:
        parts.append(f"{counted[None]} here")
    return ", ".join(parts)


def near_misses(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Report marker names that look like slips of ``gpu``, or like markers in use elsewhere for it.

    :param names: markers of tests that stay here. :param known: the names that ship a test.
    """
    known = list(known)
    lines = []
    for name in sorted(set(names)):
        close = difflib.get_close_matches(name.lower(), known, 1, 0.75)
        if name in known:
            continue
        if name in launchers.SUGGESTED:
            lines.append(
                f"marker {name!r} ships nothing; remotegpu_aliases can say: "
                f"{launchers.SUGGESTED[name]}"
            )
        elif name in FOREIGN:
            lines.append(
                f"marker {name!r} ships nothing; remotegpu_aliases can say: {name} = {gpu.MARK}"
            )
        elif close:
            lines.append(f"marker {name!r} ships nothing; did you mean {close[0]!r}?")
    return lines


def describe(
    ids: Sequence[str],
    shapes: Sequence[Shape | None],
    settings: Iterable[Setting],
    where: str | None,
    upload: str,
    costs: Iterable[str] = (),
    hides: Callable[[str], str] = blotted,
) -> list[str]:
    """Write the plan: each setting with its origin, then each test with its place.

    :param where: the far side in words; ``None`` where the session has none.
    :param costs: lines about what it may cost.
    :param hides: blots out what is secret in a value.
    """
    lines = ["settings:"]
    lines += [f"  {s.name:<13} {hides(repr(s.value)):<28} ({s.origin})" for s in settings]
    if where is None:
        lines.append(
            "far side: none; a marked test runs here where its GPUs are, else it is skipped"
        )
    else:
        lines += [f"far side: {where}", f"upload: {upload}", f"tests: {counts(shapes)}", *costs]
    side = "here" if where is None else "far"
    for stretch in stretches(shapes):
        place = "here" if stretch.shape is None else f"{side}, {stretch.shape}"
        lines += [f"  {place:<12} {nodeid}" for nodeid in ids[stretch.first : stretch.last]]
    return lines


def describe_groups(
    shape: Shape, workers: int, groups: Iterable[tuple[float | None, Sequence[str]]]
) -> list[str]:
    """Write how several workers would share the tests of one shape.

    :param groups: the seconds of each, where they are known, and its tests.
    """
    lines = [f"groups on {shape}, in this order to whichever of {workers} workers is free:"]
    for seconds, ids in groups:
        time = "unknown" if seconds is None else f"{seconds:.2f} s"
        names = ids[0] if len(ids) == 1 else f"{ids[0]} ... {ids[-1]}"
        lines.append(f"  {time:>10}  {len(ids):>4} test{'s' if len(ids) != 1 else ' '}  {names}")
    return lines
