"""The far environment: what has to be installed there, read from the project's files.

A recipe is made of values only, so that a backend may turn it into whatever its provider builds.
"""

from __future__ import annotations

from pytest_remotegpu.recipe.declared import Declared, declare, local_secrets
from pytest_remotegpu.recipe.fingerprint import fingerprint
from pytest_remotegpu.recipe.needs import Here
from pytest_remotegpu.recipe.reading import read
from pytest_remotegpu.recipe.reasons import names, to_plain, why
from pytest_remotegpu.recipe.steps import Image
from pytest_remotegpu.recipe.values import (
    Base,
    Files,
    Recipe,
    Step,
    UvProject,
    Volume,
    decode,
    encode,
)
from pytest_remotegpu.recipe.words import describe, rents

__all__ = [
    "Base",
    "Declared",
    "Files",
    "Here",
    "Image",
    "Recipe",
    "Step",
    "UvProject",
    "Volume",
    "declare",
    "decode",
    "describe",
    "encode",
    "fingerprint",
    "local_secrets",
    "names",
    "read",
    "rents",
    "to_plain",
    "why",
]
