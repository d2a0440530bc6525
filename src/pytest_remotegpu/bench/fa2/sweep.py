"""What a sweep is to measure: read from TOML or built from words, and each value looked at.

Values and one file; no torch, since it is read before anything is rented.
"""

from __future__ import annotations

import difflib
import itertools
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from pytest_remotegpu.bench import thresholds
from pytest_remotegpu.bench.fa2 import checks
from pytest_remotegpu.bench.fa2.rows import FA2, FLASH, MASKED, Branch, Direction, Problem, Regime
from pytest_remotegpu.errors import UsageError

__all__ = ["COLUMNS", "TABLE", "Shape", "Sweep", "changed", "from_plain", "read"]

TABLE: Final = ("tool", "remotegpu", "fa2")
"""Where a ``pyproject.toml`` has it."""
COLUMNS: Final = (MASKED, FLASH, "sdpa-cudnn", FA2, "fa2-folded", "flash_attn")
"""What is measured where nobody says; what is not there says so in its rows."""
DTYPES: Final = ("float16", "bfloat16")

Word = TypeVar("Word", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of attention beside its lengths.

    :ivar batch: sequences.
    :ivar groups: of key/value heads. :ivar heads: of queries in each group.
    :ivar width: of a head of queries and keys. :ivar value_width: of a head of values.
    """

    batch: int = 1
    groups: int = 2
    heads: int = 2
    width: int = 64
    value_width: int = 64

    def problem(
        self, branch: Branch, direction: Direction, dtype: str, length: int, **more: int
    ) -> Problem:
        """Make a problem of these sizes.

        :param more: its window, or block and stride.
        """
        return Problem(
            branch,
            direction,
            dtype,
            self.batch,
            self.groups,
            self.heads,
            self.width,
            self.value_width,
            length,
            **more,
        )


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is to be measured.

    :ivar branches: sliding windows, compressed tokens, or both.
    :ivar lengths: of sequences of sliding windows; with each of ``windows``.
    :ivar windows: tokens that each one sees, itself among them.
    :ivar compressed_lengths: of sequences of the compressed branch; with each of ``blocks``.
    :ivar blocks: pairs: tokens that are compressed into one, and from one's begin to the next's.
    :ivar columns: ways to compute them, by name.
    :ivar further: columns of the user, by name: ``module:function``. They are measured too.
    :ivar margin: how many times faster is faster; an adaptive search goes by it.
    :ivar repetitions: of all of it.
    :ivar warmup: rounds that are not counted. :ivar rounds: that are.
    :ivar seed: of the inputs.
    """

    branches: tuple[Branch, ...] = (Branch.SLIDING, Branch.COMPRESSED)
    lengths: tuple[int, ...] = (256, 512, 1024)
    windows: tuple[int, ...] = (32, 64, 128, 256)
    compressed_lengths: tuple[int, ...] = (256, 512, 1024)
    blocks: tuple[tuple[int, int], ...] = ((32, 16),)
    shapes: tuple[Shape, ...] = (Shape(),)
    directions: tuple[Direction, ...] = (Direction.FORWARD,)
    dtypes: tuple[str, ...] = ("float16",)
    regimes: tuple[Regime, ...] = (Regime.EAGER, Regime.DEVICE)
    columns: tuple[str, ...] = COLUMNS
    further: Mapping[str, str] = field(default_factory=dict)
    margin: float = 1.2
    repetitions: int = 1
    warmup: int = 20
    rounds: int = 40
    seed: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """All columns, the user's last."""
        return (*self.columns, *(name for name in self.further if name not in self.columns))

    def series(self) -> Iterator[tuple[Problem, ...]]:
        """Give the problems that make up one map each, with all of its lengths and windows."""
        for dtype, direction, shape in itertools.product(self.dtypes, self.directions, self.shapes):
            if Branch.SLIDING in self.branches:
                yield tuple(
                    shape.problem(Branch.SLIDING, direction, dtype, length, window=window)
                    for length in self.lengths
                    for window in self.windows
                )
            if Branch.COMPRESSED in self.branches:
                for block, stride in self.blocks:
                    yield tuple(
                        shape.problem(
                            Branch.COMPRESSED, direction, dtype, length, block=block, stride=stride
                        )
                        for length in self.compressed_lengths
                    )

    def problems(self) -> tuple[Problem, ...]:
        """Give all problems, those of one map beside each other."""
        return tuple(itertools.chain.from_iterable(self.series()))

    def to_plain(self) -> dict[str, Any]:
        """Give it as plain data, under the keys that a file has."""
        plain: dict[str, Any] = {}
        for one in fields(self):
            plain[_key(one.name)] = _plain(getattr(self, one.name))
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, Shape):
        return {_key(name): number for name, number in asdict(value).items()}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, StrEnum):
        return str(value)
    return dict(value) if isinstance(value, Mapping) else value


def _key(name: str) -> str:
    return name.replace("_", "-")


# reading


def read(path: Path) -> Sweep:
    """Read a sweep from a TOML file.

    A ``pyproject.toml`` has it in the table ``tool.remotegpu.fa2``; any other file may have that
    table too, or the keys at its top.

    :raises UsageError: where it can't be read, or has what can't be meant.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"the sweep {path} can't be read: {error.strerror or error}",
            fix="name a TOML file, or leave it away for the default sweep",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"the sweep {path} is no TOML: {error}") from error
    table: Any = data
    for part in TABLE:
        table = table.get(part) if isinstance(table, dict) else None
    if table is None and path.name == "pyproject.toml":
        raise UsageError(f"{path} has no table [{'.'.join(TABLE)}]", fix="add it, or name a file")
    return from_plain(data if table is None else table, str(path))


def from_plain(data: Any, source: str = "the sweep") -> Sweep:
    """Make a sweep of plain data; a key that is not there has its default.

    :param source: where it is from, for errors.
    :raises UsageError: where a key or value can't be meant.
    """
    return _changed(Sweep(), data, source)


def changed(sweep: Sweep, words: Sequence[str]) -> Sweep:
    """Change a sweep by words of a command line, ``KEY=VALUE``.

    A value is TOML's; a list of plain words and numbers needs neither brackets nor quotes:
    ``lengths=256,512``, ``dtypes=bfloat16``, ``blocks=[[32, 16]]``.

    :raises UsageError: where a word can't be meant.
    """
    data: dict[str, Any] = {}
    for word in words:
        key, is_pair, value = word.partition("=")
        key = key.strip()
        if not is_pair:
            raise UsageError(f"{word!r} is no KEY=VALUE", fix="write for instance lengths=256,512")
        if key in data:
            raise UsageError(f"{key} is given twice", fix="give it once, with all of its values")
        data[key] = _value(key, value.strip())
    return _changed(sweep, data, "the command line")


def _value(key: str, text: str) -> Any:
    """Read a value as TOML, or as a list of bare words."""
    if text.startswith(("[", "{")):
        try:
            return tomllib.loads(f"it = {text}")["it"]
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{key} is {text!r}, which is no TOML value: {error}") from error
    parts = [_bare(part.strip()) for part in text.split(",")]
    return parts if key in LISTS or len(parts) > 1 else parts[0]


def _bare(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip("\"'")


def _changed(sweep: Sweep, data: Any, source: str) -> Sweep:
    if not isinstance(data, Mapping):
        raise UsageError(f"{source} is {data!r}, which is no table of keys")
    values = {}
    for key, value in data.items():
        if key not in READERS:
            near = difflib.get_close_matches(str(key), READERS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"take of {', '.join(READERS)}"
            raise UsageError(f"{source} has the unknown key {key!r}", fix=hint)
        values[key.replace("-", "_")] = READERS[key](f"{key} of {source}", value)
    made = replace(sweep, **values)
    _look(made, source)
    return made


def _look(sweep: Sweep, source: str) -> None:
    """Look at values that have to go together."""
    for length, (block, _stride) in itertools.product(sweep.compressed_lengths, sweep.blocks):
        if length < block and Branch.COMPRESSED in sweep.branches:
            raise UsageError(
                f"compressed-lengths of {source} has {length}, which is shorter than a block of "
                f"{block}: there would be no compressed token",
                fix=f"give lengths of {block} or more",
            )
    twice = set(sweep.further) & set(checks.NAMES)
    if twice:
        raise UsageError(
            f"further of {source} has {sorted(twice)}, which are names of ours",
            fix="give your columns other names",
        )
    unknown = [name for name in sweep.columns if name not in {*checks.NAMES, *sweep.further}]
    if unknown:
        raise UsageError(
            f"columns of {source} has {unknown[0]!r}, which is none",
            fix=f"take of {', '.join(checks.NAMES)}, or add it to further as module:function",
        )


def _shapes(name: str, value: Any) -> tuple[Shape, ...]:
    made = []
    for table in checks.some(name, value):
        if not isinstance(table, Mapping):
            raise checks.wrong(name, table, "a table such as { heads = 4, width = 128 }")
        if unknown := [key for key in table if key not in SIZES]:
            raise checks.wrong(name, unknown[0], f"a key of {', '.join(SIZES)}")
        sizes = {
            key.replace("-", "_"): SIZES[key](f"{key} in {name}", size)
            for key, size in table.items()
        }
        if "width" in sizes:
            sizes.setdefault("value_width", sizes["width"])
        made.append(Shape(**sizes))
    return checks.once(name, made)


def _blocks(name: str, value: Any) -> tuple[tuple[int, int], ...]:
    made = []
    for pair in checks.some(name, value):
        if not isinstance(pair, list | tuple) or len(pair) != len(("block", "stride")):
            raise checks.wrong(name, pair, "a pair [block, stride] such as [32, 16]")
        block, stride = (checks.count(name, number) for number in pair)
        made.append((block, stride))
    return checks.once(name, made)


def _words(kind: type[Word]) -> Callable[[str, Any], tuple[Word, ...]]:
    def words(name: str, value: Any) -> tuple[Word, ...]:
        return tuple(kind(word) for word in checks.among(name, value, [str(one) for one in kind]))

    return words


def _margin(name: str, value: Any) -> float:
    if type(value) not in (int, float):
        raise checks.wrong(name, value, "a number such as 1.2")
    try:
        thresholds.in_words(value)
    except ValueError:
        raise checks.wrong(name, value, "a positive number such as 1.2") from None
    return float(value)


SIZES: Final[Mapping[str, Callable[[str, Any], int]]] = {
    "batch": checks.count,
    "groups": checks.count,
    "heads": checks.count,
    "width": checks.width,
    "value-width": checks.width,
}
READERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "branches": _words(Branch),
    "lengths": checks.counts,
    "windows": checks.counts,
    "compressed-lengths": checks.counts,
    "blocks": _blocks,
    "shapes": _shapes,
    "directions": _words(Direction),
    "dtypes": lambda name, value: checks.among(name, value, DTYPES),
    "regimes": _words(Regime),
    "columns": checks.words,
    "further": checks.targets,
    "margin": _margin,
    "repetitions": checks.count,
    "warmup": lambda name, value: checks.count(name, value, least=0),
    "rounds": lambda name, value: checks.count(name, value, least=checks.FEWEST),
    "seed": lambda name, value: checks.count(name, value, least=0),
}
"""What reads a key's value."""
LISTS: Final = frozenset(
    key for key, default in Sweep().to_plain().items() if isinstance(default, list)
)
