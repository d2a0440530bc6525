"""The image of an environment, as Modal builds it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

__all__ = ["build"]


def build(recipe: Mapping[str, Any], modal: Any) -> Any:  # noqa: ARG001 -- the recipe comes with its own branch
    """Describe the image; nothing is sent by that."""
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    names = ("pytest", "cloudpickle", "msgspec", "pluggy", "nvidia-ml-py")
    pins = [f"{name}=={version(name)}" for name in names]
    image = modal.Image.debian_slim(python_version=minor).uv_pip_install(*pins)
    return image.add_local_python_source("pytest_remotegpu")
