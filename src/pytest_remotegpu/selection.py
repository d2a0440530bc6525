"""Which tests go where: marks of pytest items become shapes, and ill-formed marks usage errors.

Knows pytest items and the mark; knows nothing of backends, wire or session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from pytest_remotegpu import gpu, launchers, plan
from pytest_remotegpu.config import Settings
from pytest_remotegpu.errors import MarkerError, UsageError
from pytest_remotegpu.gpu import Shape

if TYPE_CHECKING:  # not loaded where nothing is shipped
    from pytest_remotegpu.backends.base import Checks
    from pytest_remotegpu.classify.needing import Need

__all__ = [
    "NO_CARD",
    "Fitting",
    "Rules",
    "by_demand",
    "is_marked",
    "least",
    "near_misses",
    "own_marker",
    "rules_of",
    "runs_nothing",
    "shape_of",
    "shapes_of",
    "takes_all",
]

MOST_ERRORS = 10
FLASH: Final = "flash_attn"
FLASH_CAPABILITY: Final = 8.0
"""Of Ampere, the first cards that FlashAttention-2 runs on (https://github.com/Dao-AILab/flash-attention)."""
SHOWING: Final = (
    "collectonly", "setupplan", "showfixtures", "show_fixtures_per_test", "cacheshow",
)  # fmt: skip
"""Values of pytest's options with which a session only shows something."""
OWN_LINE = f"{gpu.SIGNATURE}: run this test where GPUs are; see pytest-remotegpu"


def own_marker(lines: Iterable[str]) -> bool:
    """Say whether the project registers a ``gpu`` marker itself.

    :param lines: the ini value ``markers``.
    """
    return any(gpu.marker_name(line) == gpu.MARK for line in lines if line != OWN_LINE)


Mark = tuple[tuple[Any, ...], Mapping[str, Any]]


def _marks_of(item: pytest.Item, aliases: Mapping[str, Mapping[str, Any]]) -> list[Mark]:
    """Give the arguments of a test's marks, nearest first.

    Those of its parameters are the nearest; pytest itself gives them after those of the function.

    :raises MarkerError: for a mark that lacks what its alias takes over.
    """
    callspec: Any = getattr(item, "callspec", None)
    of_parameters = () if callspec is None else callspec.marks
    return [
        (mark.args, mark.kwargs)
        if mark.name == gpu.MARK
        else ((), gpu.bind(aliases[mark.name], mark.args, mark.kwargs))
        for mark in (*of_parameters, *item.iter_markers())
        if mark.name == gpu.MARK or mark.name in aliases
    ]


def shape_of(item: pytest.Item, aliases: Mapping[str, Mapping[str, Any]]) -> Shape | None:
    """Merge the marks of a test; ``None`` for a test that has none.

    :raises MarkerError: for an ill-formed mark.
    """
    marks = _marks_of(item, aliases)
    return gpu.merge_marks(marks) if marks else None


def is_marked(item: pytest.Item, aliases: Mapping[str, Mapping[str, Any]]) -> bool:
    """Say whether a test has the mark, be it ill-formed: :func:`shapes_of` says so then."""
    try:
        return bool(_marks_of(item, aliases))
    except MarkerError:
        return True


class Rules(NamedTuple):
    """What the marks of a test say of its run, beyond what its worker must offer.

    :ivar timeout: its limit in seconds, where they set one. :ivar alone: whether it is to have a
        process for itself.
    """

    timeout: float | None = None
    alone: bool = False


def rules_of(item: pytest.Item, aliases: Mapping[str, Mapping[str, Any]]) -> Rules:
    """Give the rules of a test.

    :raises MarkerError: for an ill-formed mark.
    """
    said = gpu.merge_arguments(_marks_of(item, aliases))
    timeout = float(said["timeout"]) if "timeout" in said else None
    return Rules(timeout, said.get("isolate", False))


NO_CARD: Final = Shape(0)
"""Of a worker that has no card to itself; one that only collects sees them all."""


def by_demand(shape: Shape) -> tuple[bool, Shape]:
    """Give a key by which shapes are sorted: those first that ask for a number of cards only."""
    return shape != Shape(shape.count), shape


def least(shapes: Iterable[Shape], spare: Shape = NO_CARD) -> Shape:
    """Give the shape of tests without a mark, where all are shipped: the one that asks for least.

    A worker of their own would be started, and paid for, for nothing. But they have not asked for
    any variables, so they never run in a worker that has some.

    :param shapes: those of tests that have the mark.
    :param spare: what is given where none will do.
    """
    return min((shape for shape in shapes if not shape.env), key=by_demand, default=spare)


def shapes_of(
    items: Sequence[pytest.Item],
    settings: Settings,
    fitting: Fitting | None = None,
    spare: Shape = NO_CARD,
) -> list[Shape | None]:
    """Give the shape of each test: ``None`` for one that runs here.

    :param fitting: of a backend that can tell beforehand what it will have.
    :param spare: see :func:`least`.
    :raises UsageError: naming each test with an ill-formed mark; as :meth:`Fitting.fit` does.
    """
    shapes: list[Shape | None] = []
    errors: list[str] = []
    pairs = Pairs(items[0].config) if items else None
    for item in items:
        try:
            shape = shape_of(item, settings.aliases)
            if shape is not None and shape.launcher and pairs is not None:
                pairs.check(item, shape.launcher)
        except MarkerError as error:
            errors.append(f"{item.nodeid}: {error}")
            shape = None
        shapes.append(shape)
    if errors:
        raise UsageError(_report(errors, own=own_marker(items[0].config.getini("markers"))))
    fitted = _fitted(items, shapes, fitting)
    if not settings.ship_all:
        return fitted
    lent = least((shape for shape in fitted if shape is not None), spare)
    return _fitted(items, [shape or lent for shape in fitted], fitting)


def _fitted(
    items: Sequence[pytest.Item], shapes: Sequence[Shape | None], fitting: Fitting | None
) -> list[Shape | None]:
    if fitting is None:
        return list(shapes)
    fitted: list[Shape | None] = []
    unfit: dict[str, list[str]] = {}
    for item, shape in zip(items, shapes, strict=True):
        try:
            fitted.append(shape and fitting.fit(item.path, shape))
        except UsageError as error:
            unfit.setdefault(str(error), []).append(item.nodeid)
    if unfit:
        errors = [f"{_named(ids)}: {text}" for text, ids in unfit.items()]
        raise UsageError(_report(errors, own=False))
    return fitted


def _named(ids: Sequence[str]) -> str:
    """Name the first of some tests, and say how many more there are."""
    more = len(ids) - 1
    return ids[0] + (f" and {more} more test{'s' if more > 1 else ''}" if more else "")


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


class Pairs:
    """Looks whether launchers can start what they are to start.

    :param config: of the session, whose folders are looked through.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._modules: dict[Path, list[str]] = {}

    def check(self, item: pytest.Item, launcher: str) -> None:
        """Look at one test.

        :raises MarkerError: where it is of a framework that another launcher has to start.
        """
        if item.path not in self._modules:
            self._modules[item.path] = self._imported(item.path)
        marks = [mark.name for mark in item.iter_markers()]
        why = launchers.refusal(launcher, marks, self._modules[item.path])
        if why:
            raise MarkerError(why)

    def _imported(self, path: Path) -> list[str]:
        from pytest_remotegpu.candidates import folders_of  # noqa: PLC0415 -- see the top
        from pytest_remotegpu.classify.needing import Needing  # noqa: PLC0415 -- see the top

        found = []
        for module in filter(None, (each.module for each in launchers.FRAMEWORKS)):
            need = Needing(module, self._config.rootpath, folders_of(self._config)).of(path)
            found += [module] if need is not None and need.sure else []
        return found


class Fitting:
    """Finds the shape with which a backend gives a test what it needs.

    A test that imports flash_attn needs cards that FlashAttention-2 runs on, be its mark silent.

    :ivar notes: what the user should know of tests that have none of these.
    """

    def __init__(self, backend: Checks, config: pytest.Config) -> None:
        self._backend = backend
        self._config = config
        self._needs: Callable[[Path], Need | None] | None = None
        self._fitted: dict[tuple[Path, Shape], Shape] = {}
        self.notes: list[str] = []

    def fit(self, path: Path, shape: Shape) -> Shape:
        """Give the shape of tests of a file: theirs, or one that asks for more.

        :raises UsageError: where the backend will not have what they need.
        """
        if (path, shape) not in self._fitted:
            self._backend.check(shape)
            self._fitted[path, shape] = self._capable(path, shape)
        return self._fitted[path, shape]

    def _capable(self, path: Path, shape: Shape) -> Shape:
        need = self._need(path) if shape.count else None
        if need is None or shape.min_capability >= FLASH_CAPABILITY:
            return shape
        capable = replace(shape, min_capability=FLASH_CAPABILITY)
        place = "" if need.file == path else f" in {self._shown(need.file)}"
        try:
            self._backend.check(capable)
        except UsageError as error:
            text = f"{path.name} imports {FLASH}{place}: {error}"
            if need.sure:
                raise UsageError(text) from None
            self.notes.append(text)
            return shape
        # a worker of its own only where it would have other cards
        offers = getattr(self._backend, "offers", None)
        return shape if offers is None or offers(shape) == offers(capable) else capable

    def _need(self, path: Path) -> Need | None:
        if self._needs is None:
            from pytest_remotegpu.candidates import folders_of  # noqa: PLC0415 -- see the top
            from pytest_remotegpu.classify.needing import Needing  # noqa: PLC0415 -- see the top

            self._needs = Needing(FLASH, self._config.rootpath, folders_of(self._config)).of
        return self._needs(path)

    def _shown(self, path: Path) -> str:
        root = self._config.rootpath
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


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


def takes_all(config: pytest.Config) -> bool:
    """Say whether a session runs all marked tests of the files that it is given."""
    option = config.option
    fewer = any(getattr(option, name, None) for name in ("keyword", "deselect", "lf", "stepwise"))
    marked = getattr(option, "markexpr", "") or gpu.MARK
    return not fewer and marked == gpu.MARK and not any("::" in arg for arg in config.args)


def runs_nothing(config: pytest.Config) -> bool:
    """Say whether a session neither sets up nor runs a test, and only shows what there is."""
    return any(getattr(config.option, name, None) for name in SHOWING)
