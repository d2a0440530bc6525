"""What torch's flight recorders say of collectives: which one each rank is in, and which not.

Texts in, words out; knows no process and no torch.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pytest_remotegpu.worker.ranks.words import folded, named, said_of

__all__ = ["Operation", "pending", "read", "words"]

DEFAULT: Final = "default_pg"
ALIKE: Final = frozenset({"all_reduce", "broadcast", "reduce"})
"""Collectives whose tensors must have one size and type in all ranks."""


@dataclass(frozen=True)
class Operation:
    """One collective, or one message between two ranks, as a rank has entered it.

    :ivar group: backend and name of its process group. :ivar title: the group in words.
    :ivar number: which one of the group's it is. :ivar tensors: types and sizes that go in.
    :ivar done: whether the rank has come out of it. :ivar pair: whether it is of two ranks alone.
    :ivar members: all ranks of the group; empty where that is not known.
    """

    group: tuple[str, str]
    title: str
    number: int
    name: str
    tensors: str
    done: bool
    pair: bool = False
    members: frozenset[int] = frozenset()

    def __str__(self) -> str:
        about = f" ({self.tensors})" if self.tensors else ""
        return f"{self.name}, no. {self.number} of {self.title}{about}"


def read(dumps: Iterable[bytes], since: int = 0) -> list[Operation]:
    """Read what the recorders of one rank have dumped as JSON; what makes no sense is left out.

    :param since: the time from which on to count, as ``time.time_ns`` has it.
    :return: the operations in the order in which the rank has entered them; of groups that have
        gone and come again under one name, those of the last one.
    """
    found: list[tuple[int, int, Operation]] = []
    for dump in dumps:
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, IndexError):
            found += _entries(json.loads(dump), since)
    kept: dict[tuple[str, str], list[tuple[int, int, Operation]]] = {}
    for at, order, operation in sorted(found, key=lambda one: one[:2]):
        own = kept.setdefault(operation.group, [])
        if own and order <= own[-1][1]:
            own.clear()
        own.append((at, order, operation))
    every = sorted((one for own in kept.values() for one in own), key=lambda one: one[:2])
    return [operation for _, _, operation in every]


def _entries(data: Mapping[str, Any], since: int) -> list[tuple[int, int, Operation]]:
    """Give when each operation was entered, its number among all of its group, and itself."""
    members = _members(data.get("pg_config", {}))
    return [
        (int(entry["time_created_ns"]), int(entry["op_id"]), _operation(entry, members))
        for entry in data.get("entries", [])
        if int(entry["time_created_ns"]) >= since
    ]


def _members(config: Mapping[str, Any]) -> dict[str, frozenset[int]]:
    return {
        str(about["name"]): frozenset(int(rank) for rank in json.loads(about["ranks"]))
        for about in config.values()
    }


def _operation(entry: Mapping[str, Any], members: Mapping[str, frozenset[int]]) -> Operation:
    backend, _, name = str(entry["profiling_name"]).rpartition(":")
    group, description = (str(part) for part in entry["process_group"])
    known = description if description not in ("", "undefined") else group
    pair = bool(entry.get("is_p2p", False))
    shapes = zip(entry.get("input_dtypes", []), entry.get("input_sizes", []), strict=False)
    return Operation(
        group=(backend, group),
        title="the default group" if known == DEFAULT else f"group {known}",
        number=int(entry["p2p_seq_id" if pair else "collective_seq_id"]),
        name=name,
        tensors=", ".join(f"{kind} {sizes}" for kind, sizes in shapes),
        done=bool(entry.get("retired")) or entry.get("state") == "completed",
        pair=pair,
        members=members.get(group, frozenset()),
    )


def pending(operations: Iterable[Operation]) -> Operation | None:
    """Give the one that a rank, or its card, has entered first and has not come out of."""
    return next((operation for operation in operations if not operation.done), None)


def words(recorded: Mapping[int, list[Operation]], world: int) -> str:
    """Say of each rank which collective it is in; empty where none has entered any.

    :param recorded: what the ranks that could be asked have entered. :param world: how many ranks
        there are.
    """
    if not any(recorded.values()):
        return ""
    texts = {rank: _state(rank, recorded, world) for rank in sorted(recorded)}
    lines = [said_of(ranks, text, mark=":") for ranks, text in folded(texts)]
    return "\n".join([*lines, *_differences(recorded)])


def _state(rank: int, recorded: Mapping[int, list[Operation]], world: int) -> str:
    operations = recorded[rank]
    now = pending(operations)
    if now is None:
        last = (
            f"; the last was {operations[-1]}"
            if operations
            else ", and has entered none in this test"
        )
        return f"in no collective{last}"
    absent = _absent(now, recorded, world)
    verb = "has" if len(absent) == 1 else "have"
    return f"in {now}" + (f", which {named(absent)} {verb} not entered" if absent else "")


def _absent(operation: Operation, recorded: Mapping[int, list[Operation]], world: int) -> list[int]:
    """List the ranks that were asked and have not come as far as this collective."""
    if operation.pair:
        return []
    group = operation.group
    members = operation.members or {
        rank
        for rank, own in recorded.items()
        if operation.title == "the default group" or any(one.group == group for one in own)
    }
    reached = {
        rank: max((one.number for one in own if one.group == group and not one.pair), default=0)
        for rank, own in recorded.items()
    }
    return [r for r in range(world) if r in members and reached.get(r, world) < operation.number]


def _differences(recorded: Mapping[int, list[Operation]]) -> list[str]:
    """Say of each group which is the first collective that is not the same one in all ranks."""
    found: dict[tuple[tuple[str, str], int], dict[int, Operation]] = {}
    for rank, operations in recorded.items():
        for operation in operations:
            if not operation.pair:
                found.setdefault((operation.group, operation.number), {})[rank] = operation
    said: dict[tuple[str, str], str] = {}
    for (group, number), entered in sorted(found.items()):
        texts = {rank: _signature(operation) for rank, operation in entered.items()}
        if group not in said and len(set(texts.values())) > 1:
            each = "; ".join(said_of(ranks, text, mark=":") for ranks, text in folded(texts))
            title = next(iter(entered.values())).title
            said[group] = f"no. {number} of {title} differs: {each}"
    return list(said.values())


def _signature(operation: Operation) -> str:
    alike = operation.name in ALIKE and operation.tensors
    return f"{operation.name} ({operation.tensors})" if alike else operation.name
