"""What a run with a patch shows beside one without: what was replaced, and whether it ran.

Knows the words for it, and no check, no bounds and no library that patches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from pytest_remotegpu.diagnostics import patching, tracing
from pytest_remotegpu.diagnostics.verdict import Finding

if TYPE_CHECKING:
    import torch

__all__ = [
    "MARK",
    "already",
    "codes",
    "globally",
    "lacking",
    "not_patched",
    "not_run",
    "same",
    "untouched",
]

MARK: Final = "kernels_parity "
"""What the profiler's marks around a module begin with."""


def codes(functions: Sequence[Any]) -> set[Any]:
    """Give the code of functions and classes."""
    return {code for function in functions for code in patching.code_of(function)}


def lacking(plain: torch.nn.Module, patched: torch.nn.Module) -> Finding | None:
    """Find parameters or buffers that only one of two models has."""
    before, after = ({n for n, _ in m.named_parameters()} for m in (plain, patched))
    if before == after and {*plain.state_dict()} == {*patched.state_dict()}:
        return None
    return Finding(
        "other-parameters",
        "the patched model has other parameters or buffers than the plain one",
        "let the patch keep names and shapes, so that weights can be carried over",
        tuple(sorted(before ^ after or {*plain.state_dict()} ^ {*patched.state_dict()})),
    )


def untouched(names: Sequence[str], changes: Sequence[patching.Replaced]) -> list[Finding]:
    """Find that nothing was replaced."""
    if names or changes:
        return []
    return [
        Finding(
            "nothing-patched",
            "the patch has replaced nothing: no module, no method, no function",
            "see whether it knows this model (Liger goes by config.model_type and says nothing of "
            "others), and whether it was applied to all models before: then both sides have it",
        )
    ]


def already(ran: tracing.Trace, new: set[Any], library: str = "") -> Finding | None:
    """Find functions of the patch in what ran without it.

    :param new: the code that the patch puts in. :param library: whose files are the patch's.
    """
    where = tuple(
        name
        for name, code in zip(ran.names, ran.functions, strict=True)
        if code in new or (library and f"/{library}/" in code.co_filename)
    )
    if not where:
        return None
    return Finding(
        "patched-already",
        "the plain side ran what the patch puts in, so that both sides have it",
        "look for the same patch at import or in another test of the process, on classes or "
        "functions of a library; run the check before it, or in a process of its own",
        where,
    )


def _pieces(ran: tracing.Trace) -> dict[str, list[tuple[str, str]]]:
    """Give the operations that ran inside each module that has marks around it."""
    inside: dict[str, list[tuple[str, str]]] = {}
    open_: list[str] = []
    for name, inputs in ran.operations:
        if name.startswith(MARK):
            what, _, module = name.removeprefix(MARK).partition(" ")
            if what == "begin":
                open_.append(module)
                inside.setdefault(module, [])
            elif module in open_:
                open_.remove(module)
        elif "::" in name:  # kernels of a card end at other moments
            for module in open_:
                inside[module].append((name, inputs))
    return inside


def same(
    plain: tracing.Trace,
    patched: tracing.Trace,
    names: Sequence[str],
    changes: Sequence[patching.Replaced],
    *,
    allowed: bool,
) -> list[Finding]:
    """Find what was patched and runs what it ran before."""
    if allowed or not (names or changes):
        return []
    if plain.operations == patched.operations and {*plain.functions} == {*patched.functions}:
        return [
            Finding(
                "same-code",
                "both sides ran the same functions and operations: what was replaced is not used",
                "see whether the model holds the function or module that was replaced from before "
                "the patch (from ... import), and whether this batch comes by it",
                (*names, *(change.name for change in changes)),
            )
        ]
    one, other = _pieces(plain), _pieces(patched)
    where = [n for n in names if other.get(n) and other[n] == one.get(n)]
    # a module around others is the same only because these are
    where = [n for n in where if not any(m != n and m.startswith(f"{n}.") for m in where)]
    if not names and plain.launches == patched.launches and plain.operations == patched.operations:
        where = [change.name for change in changes]
    if not where:
        return []
    return [
        Finding(
            "kernel-fallback",
            f"{len(where)} patched parts ran the same operations of torch as without the patch: "
            "the fast kernel did not run there",
            "see on what the kernel falls back: device, dtype, shape, a library that is missing; "
            "where the same operations are meant, say same_operations=True",
            tuple(where),
        )
    ]


def not_patched(
    names: Sequence[str], before: Mapping[str, patching.Part], expect: Sequence[str]
) -> Finding | None:
    """Find modules that had to be patched and are not.

    :param expect: patterns of names of modules or of their classes.
    """

    def matches(name: str, pattern: str) -> bool:
        return fnmatchcase(name, pattern) or fnmatchcase(before[name].kind.__name__, pattern)

    missing = [n for n in before if n not in names and any(matches(n, p) for p in expect)]
    unknown = [p for p in expect if not any(matches(name, p) for name in before)]
    if not missing and not unknown:
        return None
    return Finding(
        "not-patched",
        f"{len(missing)} modules that had to be patched are as they were, and {len(unknown)} "
        "patterns fit no module",
        "see whether the patch knows modules of this kind, and of this name",
        (*missing, *unknown),
    )


def globally(changes: Sequence[patching.Replaced]) -> Finding | None:
    """Say what the patch has replaced for all."""
    if not changes:
        return None
    return Finding(
        "patched-globally",
        f"the patch holds for the whole process: {len(changes)} functions, methods or classes were "
        "replaced; the check has put them back",
        "in a test of your own, run the plain side first, or in another process",
        tuple(change.name for change in changes),
        fails=False,
    )


def not_run(names: Sequence[str], ran: tracing.Trace) -> Finding | None:
    """Say which patched modules were not called."""
    there = _pieces(ran)
    idle = tuple(name or "(the model)" for name in names if name not in there)
    if not idle:
        return None
    return Finding(
        "patched-not-run",
        f"{len(idle)} patched modules were not called with this batch",
        "give a batch that comes by them, or see what does their work now",
        idle,
        fails=False,
    )
