"""What the project asks for and the far side has not, once something failed for want of a module.

One test after the other would tell of one package after the other; here they are all looked up at
once. What a far side says are names, which are compared and never shown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from pytest_remotegpu import lacking
from pytest_remotegpu.config import Settings
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.protocol.inventory import Has
from pytest_remotegpu.unmet import Need, Unmet

if TYPE_CHECKING:  # imported where it is needed, which is after a failure
    from packaging.requirements import Requirement

    from pytest_remotegpu.recipe.declaring import Part

__all__ = ["Demands", "Found", "absent", "unmet"]


class Found(Struct, frozen=True):
    """What there is on the far side, and what is known here of what brings what.

    :ivar projects: normal names of what is installed there. :ivar modules: what can be imported
        there. :ivar environment: what markers see there.
    :ivar brings: gives the modules of a project, as it is installed here.
    :ivar requires: gives what a project asks for in turn, likewise.
    """

    projects: frozenset[str]
    modules: frozenset[str] = frozenset()
    environment: Mapping[str, str] = field(default_factory=dict)
    brings: Callable[[str], frozenset[str]] = lambda _name: frozenset()
    requires: Callable[[str], Iterable[str]] = lambda _name: ()


class Demands:
    """Listens for what fails for want of modules.

    :param root: the project's folder.
    """

    def __init__(self, root: Path, settings: Settings) -> None:
        self._root = root
        self._settings = settings
        self._modules: dict[str, None] = {}
        self._has: Has | None = None
        self._said = False

    def lack(self, modules: Iterable[str]) -> None:
        """Note modules that a failure lacks and a package would bring."""
        self._modules.update(dict.fromkeys(modules))

    def take(self, has: Has) -> None:
        """Note what a far side has."""
        self._has = has

    def say(self, there: lacking.There) -> list[str]:
        """Give the line about it where the session ends over it; it is not given twice."""
        found = self.unmet(there)
        self._said = found is not None
        return [] if found is None else [found.words()]

    def unmet(self, there: lacking.There) -> Unmet | None:
        """Look up what is declared and not there; ``None`` where nothing failed for such a thing.

        :param there: the far side.
        """
        if not self._modules or self._has is None or self._said:
            return None
        from packaging.utils import canonicalize_name  # noqa: PLC0415 -- see the top

        projects = frozenset(map(canonicalize_name, self._has.projects))
        if "pytest" not in projects and "pytest" not in self._has.modules:
            return None  # it runs there, so this is no true account
        found = Found(
            projects,
            frozenset(self._has.modules),
            self._has.environment,
            lacking.modules_of,
            lacking.needs_of,
        )
        try:
            return self._look_up(found, there)
        except (UsageError, TypeError, ValueError, AttributeError, OSError, RecursionError):
            return None  # files that nobody can make sense of; who installs by them will say so

    def _look_up(self, found: Found, there: lacking.There) -> Unmet | None:
        from pytest_remotegpu import recipe  # noqa: PLC0415 -- see the top
        from pytest_remotegpu.recipe.declaring import stated  # noqa: PLC0415 -- as above

        given = self._settings
        declared = recipe.declare(given.requirements, given.image, given.secrets, given.volumes)
        here = recipe.Here(".".join(map(str, sys.version_info[:2])), "")
        said = stated(self._root, declared, here)
        needs = unmet(said.parts, found, self._modules)
        if not needs:
            return None
        return Unmet(tuple(needs), lacking.interpreter(there), there.made, said.lines)


def unmet(parts: Iterable[Part], found: Found, modules: Iterable[str]) -> list[Need]:
    """Find what is declared and not there.

    That is all of the parts that an environment is made of; of others, all of those that declare
    what would bring a module that was lacking.

    :param modules: those.
    """
    missing = {part: absent(part.lines, found) for part in parts}
    chosen = [part for part in missing if part.taken]
    for module in modules:
        if not any(_explains(missing[part], module, found) for part in chosen):
            able = [part for part in missing if _explains(missing[part], module, found)]
            chosen += sorted(able, key=lambda part: len(missing[part]))[:1]
    return [
        Need(part.where, _name(requirement), _asks(requirement, part))
        for part in missing
        if part in chosen
        for requirement in missing[part]
    ]


def absent(lines: Iterable[str], found: Found) -> list[Requirement]:
    """Pick the requirements that hold there and that nothing there meets, whatever the version."""
    from pytest_remotegpu.recipe.requirements import parsed  # noqa: PLC0415 -- see the top

    wanted: dict[str, Any] = {}
    for line in lines:
        requirement = parsed(line)
        if requirement is None or not _holds(requirement, found.environment):
            continue
        if not _is_met(requirement, found, frozenset()):
            wanted.setdefault(_name(requirement), requirement)
    return list(wanted.values())


def _normal(requirement: Requirement) -> str:
    from packaging.utils import canonicalize_name  # noqa: PLC0415 -- see the top

    return canonicalize_name(requirement.name)


def _name(requirement: Requirement) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{_normal(requirement)}{extras}"


def _asks(requirement: Requirement, part: Part) -> str:
    """Say what pip is to be asked for; nothing where it would get another's package."""
    if requirement.url or _normal(requirement) in part.elsewhere:
        return ""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"


def _holds(requirement: Requirement, environment: Mapping[str, str], extra: str = "") -> bool:
    from packaging.markers import (  # noqa: PLC0415 -- see the top
        UndefinedComparison,
        UndefinedEnvironmentName,
    )

    try:
        marker = requirement.marker
        return marker is None or marker.evaluate({**environment, "extra": extra})
    except (UndefinedComparison, UndefinedEnvironmentName, ValueError):
        return False


def _is_met(requirement: Requirement, found: Found, above: frozenset[str]) -> bool:
    """Say whether it is there: itself, and what its extras ask for as far as that is known here."""
    from pytest_remotegpu.recipe.requirements import parsed  # noqa: PLC0415 -- see the top

    name = _normal(requirement)
    brings = found.brings(name) or frozenset({name.replace("-", "_")})
    if name not in found.projects:
        return brings <= found.modules  # as sent with the project, or by another packager
    if _name(requirement) in above:
        return True
    above |= {_name(requirement)}
    for extra in requirement.extras:
        for line in found.requires(name):
            need = parsed(line)
            if need is None or _holds(need, found.environment):
                continue  # asked for in any case
            if _holds(need, found.environment, extra) and not _is_met(need, found, above):
                return False
    return True


def _explains(requirements: Iterable[Requirement], module: str, found: Found) -> bool:
    """Say whether one of these would bring a module, as far as that is known here."""
    from packaging.utils import canonicalize_name  # noqa: PLC0415 -- see the top

    names = [_normal(requirement) for requirement in requirements]
    return canonicalize_name(module) in names or any(module in found.brings(name) for name in names)
