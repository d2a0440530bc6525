"""Which tests go where: marks of pytest items become shapes, and ill-formed marks usage errors.

Knows pytest items and the mark; knows nothing of backends, wire or session.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_remotegpu import gpu, plan
from pytest_remotegpu.config import Settings
from pytest_remotegpu.errors import MarkerError, UsageError
from pytest_remotegpu.gpu import Shape

if TYPE_CHECKING:  # not loaded where nothing is shipped
    from pytest_remotegpu.backends.base import Checks

__all__ = ["check_offers", "near_misses", "own_marker", "shape_of", "shapes_of", "timeouts_of"]

MOST_ERRORS = 10
FLASH_CAPABILITY: Final = 8.0
"""Of Ampere, the first cards that FlashAttention-2 runs on (https://github.com/Dao-AILab/flash-attention)."""
OWN_LINE = f"{gpu.SIGNATURE}: run this test where GPUs are; see pytest-remotegpu"


def own_marker(lines: Iterable[str]) -> bool:
    """Say whether the project registers a ``gpu`` marker itself.

    :param lines: the ini value ``markers``.
    """
    names = (line.partition(":")[0].partition("(")[0].strip() for line in lines if line != OWN_LINE)
    return gpu.MARK in names


Mark = tuple[tuple[Any, ...], Mapping[str, Any]]


def _marks_of(item: pytest.Item, aliases: Mapping[str, Mapping[str, Any]]) -> list[Mark]:
    """Give the arguments of a test's marks, nearest first.

    Those of its parameters are the nearest; pytest itself gives them after those of the function.
    """
    callspec: Any = getattr(item, "callspec", None)
    of_parameters = () if callspec is None else callspec.marks
    return [
        (mark.args, mark.kwargs) if mark.name == gpu.MARK else ((), aliases[mark.name])
        for mark in (*of_parameters, *item.iter_markers())
        if mark.name == gpu.MARK or mark.name in aliases
    ]


def shape_of(item: pytest.Item, aliases: Mapping[str, Mapping[str, Any]]) -> Shape | None:
    """Merge the marks of a test; ``None`` for a test that has none.

    :raises MarkerError: for an ill-formed mark.
    """
    marks = _marks_of(item, aliases)
    return gpu.merge_marks(marks) if marks else None


def timeouts_of(
    items: Iterable[pytest.Item], aliases: Mapping[str, Mapping[str, Any]]
) -> dict[pytest.Item, float]:
    """Give the limit, in seconds, of each test whose marks set one.

    :raises MarkerError: for an ill-formed mark.
    """
    arguments = {item: gpu.merge_arguments(_marks_of(item, aliases)) for item in items}
    return {item: float(said["timeout"]) for item, said in arguments.items() if "timeout" in said}


def shapes_of(items: Sequence[pytest.Item], settings: Settings) -> list[Shape | None]:
    """Give the shape of each test: ``None`` for one that runs here.

    :raises UsageError: naming each test with an ill-formed mark.
    """
    shapes: list[Shape | None] = []
    errors: list[str] = []
    for item in items:
        try:
            shape = shape_of(item, settings.aliases)
        except MarkerError as error:
            errors.append(f"{item.nodeid}: {error}")
            shape = None
        shapes.append(shape)
    if errors:
        raise UsageError(_report(errors, own=own_marker(items[0].config.getini("markers"))))
    return _all_far(shapes) if settings.ship_all else shapes


def _all_far(shapes: Sequence[Shape | None]) -> list[Shape | None]:
    """Send tests without a mark along with those that ask for least.

    A worker of their own would be started, and paid for, for nothing. But they have not asked for
    any variables, so they never run in a worker that has some.
    """
    found = [shape for shape in shapes if shape is not None and not shape.env]
    least = min(found, key=lambda shape: (_is_choosy(shape), shape), default=Shape(0))
    return [shape or least for shape in shapes]


def _is_choosy(shape: Shape) -> bool:
    return shape != Shape(shape.count)


def _report(errors: list[str], *, own: bool) -> str:
    lines = errors[:MOST_ERRORS]
    if len(errors) > MOST_ERRORS:
        lines.append(f"... and {len(errors) - MOST_ERRORS} more")
    if own:
        lines.append(
            "this project registers a gpu marker of its own; where it means something else, give "
            "its tests another marker and name that in the ini option remotegpu_aliases"
        )
    return "\n".join(lines)


def check_offers(
    backend: Checks, items: Iterable[pytest.Item], shapes: Iterable[Shape | None]
) -> None:
    """Look whether a backend will have what each test asks for.

    A file that imports flash_attn, whatever happens, needs a card that FlashAttention-2 runs on.

    :raises UsageError: where it will not.
    """
    files: dict[Shape, dict[Path, None]] = {}
    for item, shape in zip(items, shapes, strict=True):
        if shape is not None:
            files.setdefault(shape, {})[item.path] = None
    for shape, paths in files.items():
        backend.check(shape)
        needy = next(filter(_imports_flash, paths), None)
        if needy is not None and shape.count:
            capable = replace(shape, min_capability=max(shape.min_capability, FLASH_CAPABILITY))
            try:
                backend.check(capable)
            except UsageError as error:
                raise UsageError(f"{needy.name} imports flash_attn: {error}") from None


def _imports_flash(path: Path) -> bool:
    """Say whether a file imports flash_attn at its top, where no condition stands before it."""
    try:
        source = path.read_bytes()
        body = ast.parse(source).body if b"flash_attn" in source else []
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    names = [alias.name for node in body if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in body if isinstance(node, ast.ImportFrom)]
    return any(name.partition(".")[0] == "flash_attn" for name in names)


def near_misses(
    items: Iterable[pytest.Item], shapes: Iterable[Shape | None], settings: Settings
) -> list[str]:
    """Report markers of tests that stay here although they look as if they should not."""
    names = {
        mark.name
        for item, shape in zip(items, shapes, strict=True)
        if shape is None
        for mark in item.iter_markers()
    }
    return plan.near_misses(names, [gpu.MARK, *settings.aliases])
