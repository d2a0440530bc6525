"""Why an environment has to be made anew: two recipes compared, in words.

Keeps of a recipe what can be shown: digests instead of whole files, and addresses without
passwords. Values in, values out.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from packaging.utils import canonicalize_name

from pytest_remotegpu.recipe.requirements import parsed, shown
from pytest_remotegpu.recipe.values import Recipe, Step

__all__ = ["names", "to_plain", "why"]

MOST: Final = 8
"""Differences of one kind that are named."""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16] if text else ""


def names(recipe: Recipe) -> set[str]:
    """Give the packages that a recipe names, by their normal names."""
    lines = (*recipe.files.lines, *recipe.own)
    named = [requirement.name for requirement in map(parsed, lines) if requirement is not None]
    pins = [name for name, _version in recipe.uv.pins] if recipe.uv is not None else []
    return {canonicalize_name(name) for name in (*named, *pins)}


def to_plain(recipe: Recipe, more: Mapping[str, str]) -> dict[str, Any]:
    """Give what :func:`why` compares, as dicts, lists and texts.

    :param more: as :func:`pytest_remotegpu.recipe.fingerprint` gets it.
    """
    uv, base = recipe.uv, recipe.base
    return {
        "python": recipe.python,
        "package": recipe.package,
        "more": dict(more),
        "base": base.reference or base.dockerfile or "a plain image",
        "adds_python": base.adds_python,
        "dockerfile": _digest(base.text),
        "copied": {copied.path: copied.digest[:16] for copied in base.copied},
        "apt": list(recipe.apt),
        "lock": uv.path if uv else "",
        "lock_digest": _digest(uv.lock) if uv else "",
        "pyproject_digest": _digest(uv.pyproject) if uv else "",
        "pins": dict(uv.pins) if uv else {},
        "extras": list(uv.extras) if uv else [],
        "groups": list(uv.groups) if uv else [],
        "files": ", ".join(recipe.files.sources),
        "requirements": dict(_named(recipe.files.lines)),
        "constraints": dict(_named(recipe.files.constraints)),
        "own": dict(_named(recipe.own)),
        "variables": {name: _digest(f"{name}={value}") for name, value in recipe.variables},
        "steps": [_step(step) for step in recipe.steps],
        "secrets": [*recipe.secrets, *(f"env:{name}" for name in recipe.local_secrets)],
        "volumes": {volume.path: _volume(asdict(volume)) for volume in recipe.volumes},
        "preload": list(recipe.preload),
    }


def _step(step: Step) -> str:
    """Name a step, and tell its values and files apart; values may be for nobody's eyes."""
    return f"{step.method} ({_digest(json.dumps(asdict(step), default=os.fspath))[:6]})"


def _volume(volume: Mapping[str, Any]) -> str:
    return f"{volume['name']}:{volume['path']}" + (":ro" if volume["read_only"] else "")


def _named(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pair each line with the package that it is about; what is about none stands for itself."""
    for line in lines:
        requirement = parsed(line)
        if requirement is None:
            yield shown(line), ""
            continue
        marker = f"; {requirement.marker}" if requirement.marker else ""
        what = f" @ {requirement.url}" if requirement.url else str(requirement.specifier)
        hashes = _digest(line.partition(" --hash")[2])
        key = canonicalize_name(requirement.name) + marker
        yield key, shown(what) + (f" ({hashes})" if hashes else "")


def why(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> list[str]:
    """Say what differs.

    :param before: what :func:`to_plain` gave for the environment that was there; ``None`` where
        nothing is known of one.
    :return: a sentence for each difference; none where both make the same environment.
    """
    if not before:
        return ["no environment of this project is known here"]
    return list(_differences(before, now))


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for key, name in (("python", "Python"), ("package", "pytest-remotegpu"), ("base", "the image")):
        if before.get(key) != now[key]:
            yield f"{name} changed: {before.get(key) or 'unknown'} -> {now[key]}"
    for name, new in now["more"].items():
        old = (before.get("more") or {}).get(name)
        if old != new:
            yield f"{name} changed: {old or 'unknown'} -> {new}"
    if before.get("adds_python") != now["adds_python"] and before.get("base") == now["base"]:
        yield "Python is " + ("added to the image" if now["adds_python"] else "the image's own")
    if before.get("dockerfile") != now["dockerfile"] and before.get("base") == now["base"]:
        yield f"{now['base']} changed"
    yield from _tables("copied by the Dockerfile:", before.get("copied"), now["copied"], "")
    yield from _lists("apt package", before.get("apt"), now["apt"])
    yield from _lock(before, now)
    yield from _lists("extra", before.get("extras"), now["extras"])
    yield from _lists("group", before.get("groups"), now["groups"])
    source = now["files"] or before.get("files") or ""
    yield from _tables(f"{source}:", before.get("requirements"), now["requirements"])
    yield from _tables("constraint", before.get("constraints"), now["constraints"])
    yield from _tables("needed by pytest-remotegpu:", before.get("own"), now["own"])
    yield from _tables("variable", before.get("variables"), now["variables"], "")
    yield from _lists("step of pytest_remotegpu_modal_image:", before.get("steps"), now["steps"])
    yield from _lists("secret", before.get("secrets"), now["secrets"])
    yield from _tables("volume at", before.get("volumes"), now["volumes"])
    yield from _lists("module imported ahead:", before.get("preload"), now["preload"])


def _lock(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    if before.get("lock_digest") != now["lock_digest"]:
        name = now["lock"] or before.get("lock")
        if bool(before.get("lock_digest")) != bool(now["lock_digest"]):
            yield f"{name} is " + ("new" if now["lock_digest"] else "no longer used")
            return
        named = list(_tables(f"{name} changed:", before.get("pins"), now["pins"]))
        yield from named or [f"{name} changed: other files of the same versions"]
    elif before.get("pyproject_digest") != now["pyproject_digest"]:
        yield "pyproject.toml changed: what uv reads of it"


def _lists(what: str, before: Any, now: list[str]) -> Iterator[str]:
    old = list(before or [])
    yield from _few(
        [f"{what} {name} added" for name in now if name not in old]
        + [f"{what} {name} removed" for name in old if name not in now]
    )


def _tables(what: str, before: Any, now: Mapping[str, str], arrow: str = " -> ") -> Iterator[str]:
    """Compare two tables; without an arrow their values are not for people."""
    old: Mapping[str, str] = before or {}
    found = []
    for name in sorted({*old, *now}):
        if name not in old:
            found.append(f"{what} {name}{_lead(now[name]) if arrow else ''} added")
        elif name not in now:
            found.append(f"{what} {name} removed")
        elif old[name] != now[name]:
            change = f" {old[name] or 'any'}{arrow}{now[name] or 'any'}" if arrow else " changed"
            found.append(f"{what} {name}{change}")
    yield from _few(found)


def _lead(value: str) -> str:
    """Set a version apart from its name; a specifier needs no blank."""
    return f" {value}" if value[:1].isalnum() else value


def _few(found: list[str]) -> list[str]:
    if len(found) <= MOST:
        return found
    return [*found[: MOST - 1], f"... and {len(found) - MOST + 1} more like this"]
