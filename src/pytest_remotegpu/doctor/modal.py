"""Checks of Modal's SDK, for those who have it installed; rents and asks nothing."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_remotegpu.doctor.check import Check, fail, ok, warn

__all__ = ["check_token", "check_version", "examine"]


def check_version(found: str) -> Check:
    """Check the SDK's version."""
    if found.split(".")[:2] != ["1", "6"]:
        fix = "python -m pip install 'modal>=1.6,<1.7'"
        return fail("modal", f"{found}, and --remote=modal was tried with 1.6 only", fix)
    return ok("modal", found)


def check_token(environ: Mapping[str, str]) -> Check:
    """Check whether there is a token, or a file that may hold one."""
    parts = [name for name in ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET") if environ.get(name)]
    if len(parts) == 1:
        return fail("modal token", f"only {parts[0]} is set", "set both, or run: modal token new")
    if parts:
        return ok("modal token", "from MODAL_TOKEN_ID and MODAL_TOKEN_SECRET")
    path = Path(environ.get("MODAL_CONFIG_PATH") or "~/.modal.toml").expanduser()
    if path.is_file():
        return ok("modal token", f"left to {path}; not tried")
    return warn("modal token", "there is none", "modal token new")


def examine(environ: Mapping[str, str]) -> Iterator[Check]:
    """Make all checks of this module."""
    try:
        found = importlib.metadata.version("modal")
    except importlib.metadata.PackageNotFoundError:
        return
    yield check_version(found)
    yield check_token(environ)
