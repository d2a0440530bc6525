"""``pyproject.toml``: what a project depends on, with extras and groups.

Reads one such file, given as text; the folders that it points to are none of its business.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.recipe.values import READS

__all__ = ["Pyproject", "to_toml"]

USUAL: Final = ("gpu", "test", "testing", "tests")
"""Extras and groups that are taken where nobody says which."""
OF_PROJECTS: Final = ("sources", "conflicts", "default-groups", "environments")
"""Of uv's own settings, those that change what is installed, and that a project alone may have."""
ANYWHERE: Final = (
    *("index", "index-url", "extra-index-url", "no-index", "index-strategy", "find-links"),
    *("no-build", "no-build-package", "no-binary", "no-binary-package", "no-sources"),
    *("no-build-isolation", "no-build-isolation-package", "no-sources-package"),
    *("extra-build-dependencies", "extra-build-variables", "build-constraint-dependencies"),
    *("config-settings", "config-settings-package", "dependency-metadata"),
)
"""Likewise, those that a ``uv.toml`` may have as well: from where, and how packages are built."""
LINKS: Final = "find-links"


@dataclass(frozen=True)
class Pyproject:
    """A file's content.

    :ivar name: as messages name the file. :ivar data: what it says.
    """

    name: str
    data: Mapping[str, Any]

    @classmethod
    def parse(cls, name: str, text: str) -> Pyproject:
        """Read the file's text.

        :raises UsageError: where it is no TOML.
        """
        try:
            return cls(name, tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{name} is no TOML: {error}; mend the file") from None

    def _table(self, *path: str) -> dict[str, Any]:
        """Give a table, empty where there is none.

        :raises UsageError: where something else stands in its place.
        """
        found = dict(self.data)
        for number, key in enumerate(path, 1):
            inner: Any = found.get(key, {})
            if not isinstance(inner, dict):
                where = ".".join(path[:number])
                raise UsageError(
                    f"{self.name}: {where} is {inner!r}, and must be a table, [{where}]"
                )
            found = inner
        return found

    @property
    def project(self) -> dict[str, Any]:
        """The table ``[project]``."""
        return self._table("project")

    @property
    def tool_uv(self) -> dict[str, Any]:
        """The table ``[tool.uv]``."""
        return self._table("tool", "uv")

    @property
    def uv_sources(self) -> dict[str, list[dict[str, Any]]]:
        """Where uv is told to take packages from, by their normal name."""
        found = {}
        for name, value in self._table("tool", "uv", "sources").items():
            several = value if isinstance(value, list) else [value]
            tables = [source for source in several if isinstance(source, dict)]
            found[str(canonicalize_name(name))] = tables
        return found

    @property
    def is_poetry(self) -> bool:
        """Whether its dependencies are written for poetry, where nobody else reads them."""
        return bool(self._table("tool", "poetry", "dependencies"))

    @property
    def requires_python(self) -> str:
        """The versions of Python that the project admits."""
        return str(self.project.get("requires-python", ""))

    @property
    def extras(self) -> dict[str, list[Any]]:
        """Extras by their normal name.

        :raises UsageError: for one that is no list of texts.
        """
        table = self._table("project", "optional-dependencies")
        return {
            canonicalize_name(name): self._texts(value, f"project.optional-dependencies.{name}")
            for name, value in table.items()
        }

    @property
    def groups(self) -> dict[str, list[Any]]:
        """Dependency groups by their normal name.

        :raises UsageError: for one that is no list.
        """
        table = self._table("dependency-groups")
        return {
            canonicalize_name(name): self._listed(value, f"dependency-groups.{name}")
            for name, value in table.items()
        }

    def _listed(self, value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            raise UsageError(
                f"{self.name}: {where} is {value!r}, and must be a list, such as "
                f'{where.rpartition(".")[2]} = ["numpy"]'
            )
        return list(value)

    def _texts(self, value: Any, where: str) -> list[str]:
        for each in self._listed(value, where):
            if not isinstance(each, str):
                raise UsageError(f"{self.name}: {where} has {each!r}, which is no text; {READS}")
        return list(value)

    def usual(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Choose the extras and groups that tests are likely to need.

        Those that uv is told not to combine are left out.
        """
        apart = {
            canonicalize_name(str(value))
            for conflict in self._listed(self.tool_uv.get("conflicts", []), "tool.uv.conflicts")
            for part in (conflict if isinstance(conflict, list) else ())
            for value in (part.values() if isinstance(part, dict) else ())
        }
        wanted = [name for name in USUAL if name not in apart]
        extras = tuple(name for name in wanted if name in self.extras)
        return extras, tuple(name for name in wanted if name in self.groups)

    def check(self, extras: Iterable[str], groups: Iterable[str]) -> None:
        """Make sure that these exist.

        :raises UsageError: for one that does not; it lists those that do.
        """
        for kind, wanted, there in (
            ("extra", extras, self.extras),
            ("group", groups, self.groups),
        ):
            for name in wanted:
                if name not in there:
                    has = ", ".join(sorted(there)) or "none"
                    raise UsageError(f"{self.name} has no {kind} {name!r}; it has: {has}")

    def requirements(self, extras: Iterable[str] = (), groups: Iterable[str] = ()) -> list[str]:
        """List what the project depends on, with these extras and groups; itself is not in it.

        :raises UsageError: for an unknown extra or group, a circle, or what is no requirement.
        """
        self.check(extras, groups)
        found = self._texts(self.project.get("dependencies", []), "project.dependencies")
        done: set[str] = set()
        self._self_referring(found, done)
        for extra in extras:
            self._extra(extra, found, done)
        for group in groups:
            found += self._group(group, ())
            self._self_referring(found, done)
        own = canonicalize_name(str(self.project.get("name", "")))
        return [line for line in found if self._name(line) != own]

    def _extra(self, extra: str, found: list[str], done: set[str]) -> None:
        if extra in done:
            return
        done.add(extra)
        self.check([extra], ())
        found += self.extras[extra]
        self._self_referring(found, done)

    def _self_referring(self, found: list[str], done: set[str]) -> None:
        """Take in the extras that the project asks of itself, as ``name[extra]``."""
        own = canonicalize_name(str(self.project.get("name", "")))
        for line in list(found):
            if self._name(line) == own:
                for extra in sorted(map(canonicalize_name, Requirement(line).extras)):
                    self._extra(extra, found, done)

    def _name(self, line: str) -> str:
        try:
            return canonicalize_name(Requirement(line).name)
        except InvalidRequirement:
            raise UsageError(
                f"{self.name} has {line!r}, which is no requirement; {READS}"
            ) from None

    def _group(self, group: str, above: tuple[str, ...]) -> list[str]:
        """Give a group's requirements, those of included groups in place."""
        if group in above:
            raise UsageError(f"{self.name}: group {group!r} includes itself; end the circle")
        self.check((), [group])
        found: list[str] = []
        for entry in self.groups[group]:
            if isinstance(entry, str):
                found.append(entry)
                continue
            inner = entry.get("include-group") if isinstance(entry, dict) else None
            if not isinstance(inner, str):
                raise UsageError(
                    f"{self.name}: group {group!r} has {entry!r}; an entry is a requirement, or "
                    "{include-group = NAME}"
                )
            found += self._group(canonicalize_name(inner), (*above, group))
        return found

    def for_uv(self, beside: Mapping[str, Any] | None = None) -> str:
        """Write what ``uv sync --frozen`` needs of this file, and nothing that often changes.

        A workspace's other members are left out: their code travels, and what they depend on is in
        the lock file.

        :param beside: what a ``uv.toml`` beside it says, in whose favour uv ignores what both may
            have; ``None`` where there is none.
        """
        keys = ("name", "version", "requires-python", "dependencies", "optional-dependencies")
        project = {key: self.project[key] for key in keys if key in self.project}
        if "version" not in project:
            project["version"] = "0"
        settings = self.tool_uv if beside is None else beside
        uv: dict[str, Any] = {key: self.tool_uv[key] for key in OF_PROJECTS if key in self.tool_uv}
        uv |= {key: settings[key] for key in ANYWHERE if key in settings}
        if isinstance(uv.get(LINKS), list):  # folders of this machine are nowhere else
            uv[LINKS] = [link for link in uv[LINKS] if "://" in str(link)]
        kept: dict[str, Any] = {
            "project": {"name": "project", **project},
            "dependency-groups": self._table("dependency-groups"),
            "tool": {"uv": {**uv, "package": False}},
        }
        return to_toml(kept)


def to_toml(data: Mapping[str, Any]) -> str:
    """Write tables of texts, numbers, truth values and lists, in their order."""
    return "".join(f"{_key(name)} = {_value(value)}\n" for name, value in data.items() if value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(name)} = {_value(part)}" for name, part in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)
