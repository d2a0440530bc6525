"""What a batch is made of: its tensors, a call of a model with it, rows that contradict each other.

A batch is whatever a model takes: a tensor, a tuple or list of arguments, a mapping of keyword
arguments, nested at will. Knows no check.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

__all__ = [
    "Contradiction",
    "contradiction",
    "digest",
    "joined",
    "loss_of",
    "mapped",
    "part",
    "relabelled",
    "rows",
    "split",
    "tensors",
]

TARGETS: Final = ("labels", "label", "targets", "target", "y")
"""Keys under which a mapping holds what the model has to learn."""
IGNORED: Final = -100
"""The target that ``cross_entropy`` leaves out."""
JOINING: Final = (
    "see that count counts what the loss is the mean over, that join pads with ignored targets, "
    "and that no layer (BatchNorm, in-batch negatives) makes samples depend on each other"
)
"""What to look at where parts of a batch and the whole disagree in one process already."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Rows of a batch that have the same inputs and different targets.

    :ivar rows: their numbers. :ivar floor: what no loss can fall below: the mean entropy of the
        targets in nats where they are whole numbers, else their mean squared deviation.
    """

    rows: tuple[int, ...]
    floor: float
    classes: bool


def tensors(batch: Any, name: str = "batch") -> Iterator[tuple[str, torch.Tensor]]:
    """Give each tensor of a batch with a name that tells where it is, ``batch[1]`` for instance."""
    import torch  # noqa: PLC0415 -- late

    if isinstance(batch, torch.Tensor):
        yield name, batch
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from tensors(value, f"{name}[{key!r}]")
    elif isinstance(batch, list | tuple):
        for place, value in enumerate(batch):
            yield from tensors(value, f"{name}[{place}]")


def mapped(batch: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Give a batch of the same form with each tensor changed."""
    import torch  # noqa: PLC0415 -- late

    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: mapped(value, change) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        parts = [mapped(value, change) for value in batch]
        return tuple(parts) if isinstance(batch, tuple) else parts
    return batch


def rows(batch: Any) -> int:
    """Count the rows of a batch: the first dimension of its first tensor that has one, else 0."""
    return next((len(tensor) for _, tensor in tensors(batch) if tensor.ndim), 0)


def part(batch: Any, begin: int, end: int) -> Any:
    """Give some rows of a batch; what has another first dimension stays whole."""
    whole = rows(batch)
    return mapped(batch, lambda t: t[begin:end] if t.ndim and len(t) == whole else t)


def joined(parts: Sequence[Any]) -> Any:
    """Make one batch of several of the same form: tensors one below the other, in order.

    What is no tensor is taken from the first.

    :raises ValueError: where tensors do not fit below each other.
    """
    import torch  # noqa: PLC0415 -- late

    columns = [list(tensors(part)) for part in parts]
    shapes = [[tuple(tensor.shape) for _, tensor in column] for column in columns]
    fits = [[(len(shape), shape[1:]) for shape in column] for column in shapes]
    if any(fit != fits[0] for fit in fits) or any(not shape for shape in shapes[0]):
        raise ValueError(
            f"batches of these shapes can't be put below each other: {shapes}; give join= a "
            "function that makes one batch of a list of them, by padding for instance"
        )
    whole = iter([torch.cat([tensor for _, tensor in row]) for row in zip(*columns, strict=True)])
    return mapped(parts[0], lambda _: next(whole))


def split(batch: Any, number: int) -> list[Any]:
    """Make several batches of one: each gets the next of its rows, the first ones one more.

    :raises ValueError: where there are fewer rows than parts, or tensors have different numbers.
    """
    rows = {len(tensor) if tensor.ndim else 0 for _, tensor in tensors(batch)}
    if len(rows) != 1 or min(rows) < number:
        raise ValueError(
            f"a batch of {sorted(rows)} rows can't be split into {number}; give each rank its own"
        )

    def part(place: int) -> Any:
        return mapped(batch, lambda tensor: tensor.tensor_split(number)[place])

    return [part(place) for place in range(number)]


def digest(batch: Any) -> str:
    """Give a short text that two batches share only where all their tensors are equal."""
    state = hashlib.blake2b(digest_size=16)
    for name, tensor in tensors(batch):
        state.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        state.update(_bytes(tensor))
    return state.hexdigest()


def loss_of(model: torch.nn.Module, batch: Any) -> Any:
    """Call a model that computes its loss itself: with ``*batch``, ``**batch`` or ``batch``.

    :return: its output, or the part of it that is named ``loss``, or the first of a tuple.
    """
    if isinstance(batch, Mapping):
        output = model(**batch)
    elif isinstance(batch, list | tuple):
        output = model(*batch)
    else:
        output = model(batch)
    if isinstance(output, Mapping) and "loss" in output:
        return output["loss"]
    if hasattr(output, "loss"):
        return output.loss
    return output[0] if isinstance(output, tuple) and output else output


def contradiction(batch: Any) -> Contradiction | None:
    """Find rows with the same inputs and different targets.

    Of a mapping the targets are under one of :data:`TARGETS`, of a pair they are the second; the
    first dimension counts the rows. What has another form is not looked at.
    """
    parts = _parts(batch)
    if parts is None:
        return None
    inputs, targets = parts
    groups: dict[tuple[bytes, ...], list[int]] = defaultdict(list)
    for row in range(len(targets)):
        groups[tuple(_bytes(tensor[row]) for tensor in inputs)].append(row)
    rows = [
        row
        for group in groups.values()
        if len({_bytes(targets[row]) for row in group}) > 1
        for row in group
    ]
    if not rows:
        return None
    classes = not targets.is_floating_point()
    floor = (_entropy if classes else _deviation)(targets, list(groups.values()))
    return Contradiction(tuple(sorted(rows)), floor, classes)


def relabelled(one: Any, other: Any) -> tuple[int, ...]:
    """Find rows of a batch that have another target in a second one, of the same inputs.

    Looks at what :func:`contradiction` looks at, and only where the second has no other inputs and
    neither contradicts itself.
    """
    parts = [_parts(batch) for batch in (one, other)]
    if parts[0] is None or parts[1] is None or contradiction(one) or contradiction(other):
        return ()
    first, other_targets = _keyed(*parts[0]), dict(_keyed(*parts[1]))
    if {key for key, _ in first} != other_targets.keys():
        return ()
    return tuple(row for row, (key, target) in enumerate(first) if other_targets[key] != target)


def _keyed(
    inputs: list[torch.Tensor], targets: torch.Tensor
) -> list[tuple[tuple[bytes, ...], bytes]]:
    """Give each row's inputs and target as bytes."""
    return [
        (tuple(_bytes(tensor[row]) for tensor in inputs), _bytes(targets[row]))
        for row in range(len(targets))
    ]


def _parts(batch: Any) -> tuple[list[torch.Tensor], torch.Tensor] | None:
    """Tell inputs from targets."""
    if isinstance(batch, Mapping):
        key = next((key for key in TARGETS if key in batch), None)
        inputs = [
            tensor for name, value in batch.items() if name != key for _, tensor in tensors(value)
        ]
        found = [] if key is None else [tensor for _, tensor in tensors(batch[key])]
    elif isinstance(batch, list | tuple) and len(batch) == 2:  # noqa: PLR2004 -- a pair
        inputs, found = ([tensor for _, tensor in tensors(part)] for part in batch)
    else:
        return None
    if len(found) != 1 or not inputs:
        return None
    whole = [*inputs, found[0]]
    if any(t.ndim == 0 or found[0].ndim == 0 or len(t) != len(found[0]) for t in whole):
        return None
    return [tensor.detach().cpu() for tensor in inputs], found[0].detach().cpu()


def _bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size())


def _entropy(targets: torch.Tensor, groups: list[list[int]]) -> float:
    """Give the mean entropy in nats of a target, given its inputs; ignored ones do not count."""
    flat = targets.reshape(len(targets), -1).tolist()
    total, counted = 0.0, 0
    for group in groups:
        for column in zip(*(flat[row] for row in group), strict=True):
            seen = Counter(value for value in column if value != IGNORED)
            here = sum(seen.values())
            counted += here
            total -= sum(n * math.log(n / here) for n in seen.values())
    return total / counted if counted else 0.0


def _deviation(targets: torch.Tensor, groups: list[list[int]]) -> float:
    """Give the mean squared distance of the targets from the mean of those with their inputs."""
    flat = targets.reshape(len(targets), -1).double()
    total: float = sum(float(((flat[group] - flat[group].mean(0)) ** 2).sum()) for group in groups)
    return total / max(int(flat.numel()), 1)
