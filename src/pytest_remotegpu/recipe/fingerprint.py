"""Names a recipe by its content: two that would make the same environment have the same name.

Values in, text out. No value of a secret is ever in a recipe, so none is in here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from pytest_remotegpu.recipe.values import Recipe

__all__ = ["fingerprint"]

LENGTH: Final = 12
"""Hexadecimal digits: few enough to be read, and no two environments of one user share them."""
NO_DIFFERENCE: Final = ("notes",)
READ: Final = ("requirements", "spec_file")
"""Arguments of steps that name files."""


def fingerprint(recipe: Recipe, more: Mapping[str, str]) -> str:
    """Name a recipe.

    :param more: what else the environment depends on, by name, such as the version of the
        provider's client.
    """
    data = asdict(recipe)
    for name in NO_DIFFERENCE:
        del data[name]
    data["base"]["context"] = ""  # where the project lies makes no difference
    if recipe.uv is not None:
        data["uv"]["pins"] = ()  # follow from the lock file
        data["uv"]["path"] = ""
    data["files"]["sources"] = ()  # their lines count, not their names
    for step in data["steps"]:
        if step["files"]:  # what is copied counts, not from where
            reads = [key for key in READ if step["kwargs"].pop(key, None)]
            step["args"] = step["args"][0 if reads else 1 :]
    data["base"]["dockerfile"] = bool(recipe.base.dockerfile)
    text = json.dumps([data, dict(more)], sort_keys=True, ensure_ascii=True, default=os.fspath)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]
