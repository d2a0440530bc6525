"""A recipe in words, for whoever wants to know what will be made.

Values in, texts out; shows no value of a variable and no password.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_remotegpu.recipe.values import Recipe, Step

__all__ = ["describe", "rents"]


def describe(recipe: Recipe) -> list[str]:
    """Write it as lines: what it is built on, what is installed, what is attached."""
    return [f"{name}: {text}" for name, text in _parts(recipe) if text]


def rents(steps: Iterable[Step]) -> list[str]:
    """Say of each step that it rents a card, which nothing here can count.

    >>> rents([Step("run_commands", ["make"], {"gpu": "T4"})])
    ["pytest_remotegpu_modal_image: run_commands has gpu='T4', so building the image rents a GPU"]
    """
    return [
        f"pytest_remotegpu_modal_image: {step.method} has gpu={card!r}, so building the image "
        "rents a GPU"
        for step in steps
        if (card := step.kwargs.get("gpu"))
    ]


def _parts(recipe: Recipe) -> Iterator[tuple[str, str]]:
    base = recipe.base
    python = f"Python {recipe.python}"
    if base.dockerfile or base.reference:
        added = f", {python} added" if base.adds_python else ", with its own Python"
        yield "image", (base.dockerfile or base.reference) + added
    else:
        yield "image", f"a plain one with {python}"
    yield "apt", ", ".join(recipe.apt)
    if recipe.uv is not None:
        choice = [*recipe.uv.extras, *(f"group:{name}" for name in recipe.uv.groups)]
        shown = f"[{', '.join(choice)}]" if choice else ""
        yield "installs", f"{recipe.uv.path}{shown}, {len(recipe.uv.pins)} packages"
        yield "not installed, since it travels", ", ".join(recipe.uv.local)
    if recipe.files.sources:
        lines = len(recipe.files.lines)
        sources = ", ".join(recipe.files.sources)
        yield "installs", f"{sources}, {lines} line{'s' if lines != 1 else ''}"
    yield "needs", ", ".join(recipe.own)
    yield "variables", ", ".join(name for name, _value in recipe.variables)
    yield "steps of pytest_remotegpu_modal_image", ", ".join(step.method for step in recipe.steps)
    yield "secrets", ", ".join([*recipe.secrets, *(f"env:{name}" for name in recipe.local_secrets)])
    modes = {True: " (only to be read)", False: ""}
    yield (
        "volumes",
        ", ".join(f"{v.name} at {v.path}{modes[v.read_only]}" for v in recipe.volumes),
    )
