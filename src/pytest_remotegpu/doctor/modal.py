"""Checks of Modal's SDK, profiles and prices, for those who have it; rents and asks nothing.

Reads the SDK's file of profiles by itself, since a file that can't be read keeps the SDK from being
imported. Never shows a token.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.backends.modal import table
from pytest_remotegpu.doctor.check import Check, fail, ok, warn

__all__ = ["check_folder", "check_prices", "check_token", "check_version", "examine"]

STALE: Final = 365
"""Days after which a table of prices is old."""
KEYS: Final = ("token_id", "token_secret")
OAUTH: Final = ("oauth_refresh_token", "oauth_client_id")
NEW: Final = "modal token new"
PICK: Final = "modal profile activate NAME, or set MODAL_PROFILE"


def check_version(found: str) -> Check:
    """Check the SDK's version."""
    if found.split(".")[:2] != ["1", "6"]:
        fix = "python -m pip install 'modal>=1.6,<1.7'"
        return fail("modal", f"{found}, and --remote=modal was tried with 1.6 only", fix)
    return ok("modal", f"{found} (tried with 1.6)")


def check_folder(folder: Path) -> Iterator[Check]:
    """Check whether the project has something by the SDK's name."""
    for path in (folder / "modal", folder / "modal.py"):
        if path.exists():
            yield ok("modal folder", f"{path} is the project's, and not taken for the SDK")


def check_token(environ: Mapping[str, str]) -> Iterator[Check]:
    """Check whether there is a token, of which profile and in which environment of Modal's."""
    path = Path(environ.get("MODAL_CONFIG_PATH") or "~/.modal.toml").expanduser()
    try:
        profiles = _profiles(path)
    except (OSError, ValueError) as error:
        fix = f"mend it, or move it away and run: {NEW}"
        yield fail("modal profile", f"{path} can't be read: {error}", fix)
        return
    active = [name for name, profile in profiles.items() if profile.get("active") is True]
    named = environ.get("MODAL_PROFILE", "")
    if len(active) > 1:
        names = " and ".join(active)
        yield fail("modal profile", f"{path} has several that are active: {names}", PICK)
        return
    if len(profiles) > 1 and not active and not named:
        yield fail("modal profile", f"none of {_names(profiles)} in {path} is active", PICK)
        return
    name = named or "".join(active) or "default"
    where = f"profile {name!r} in {path}"
    profile = profiles.get(name, {})
    yield _token(environ, profile, where, missing=name not in profiles, others=_names(profiles))
    yield _environment(environ, profile, where)


def _profiles(path: Path) -> dict[str, dict[str, Any]]:
    """Read a file of profiles; none where there is no file.

    :raises ValueError: where it can't be meant.
    """
    if not path.is_file():
        return {}
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    if not all(isinstance(each, dict) for each in found.values()):
        raise ValueError("it has values outside of a [profile]")
    return found


def _names(profiles: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, profiles)) or "nothing"


def _token(
    environ: Mapping[str, str],
    profile: Mapping[str, Any],
    where: str,
    *,
    missing: bool,
    others: str,
) -> Check:
    name = "modal token"
    variables = {key: f"MODAL_{key.upper()}" for key in (*KEYS, *OAUTH)}
    for keys in (KEYS, OAUTH):
        sources = [
            variables[key] if environ.get(variables[key]) else where if profile.get(key) else ""
            for key in keys
        ]
        if all(sources):
            return ok(name, f"from {' and '.join(dict.fromkeys(sources))}")
        if any(sources) and keys is KEYS:
            only = next(filter(None, sources))
            other = variables[keys[sources.index("")]]
            text = f"half of it is from {only}, and {other} is missing"
            return fail(name, text, f"set {other} too, or run: {NEW}")
    if missing and environ.get("MODAL_PROFILE"):
        text = f"MODAL_PROFILE names {environ['MODAL_PROFILE']!r}, and there is {others}"
        return fail(name, text, f"{PICK}; {NEW} --profile {environ['MODAL_PROFILE']} makes it")
    return warn(name, f"there is none, in no variable and not as {where}", NEW)


def _environment(environ: Mapping[str, str], profile: Mapping[str, Any], where: str) -> Check:
    if environ.get("MODAL_ENVIRONMENT"):
        text = f"{environ['MODAL_ENVIRONMENT']}, from MODAL_ENVIRONMENT"
    elif profile.get("environment"):
        text = f"{profile['environment']}, from {where}"
    else:
        text = "the workspace's default one, since none is named"
    return ok("modal profile", f"Modal's environment is {text}")


def check_prices(today: dt.date) -> Check:
    """Check how old the prices are that this package brings."""
    days = (today - dt.date.fromisoformat(table.DATE)).days
    text = f"those of this package are of {table.DATE}, {days} days old"
    if days > STALE:
        fix = "update pytest-remotegpu, or give your own in the ini option remotegpu_prices"
        return warn("modal prices", text, fix)
    return ok("modal prices", text)


def examine(environ: Mapping[str, str]) -> Iterator[Check]:
    """Make all checks of this module."""
    try:
        found = importlib.metadata.version("modal")
    except importlib.metadata.PackageNotFoundError:
        return
    yield check_version(found)
    yield from check_folder(Path.cwd())
    yield from check_token(environ)
    yield check_prices(dt.datetime.now(tz=dt.UTC).date())
