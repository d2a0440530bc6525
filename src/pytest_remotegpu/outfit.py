"""What a session wants its far side to be equipped with: read once, handed to backends that ask.

Reads pytest's configuration and asks its hooks; knows no backend, and makes no environment itself.
"""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_remotegpu.config import Settings
from pytest_remotegpu.errors import UsageError

if TYPE_CHECKING:  # where nothing asks for a recipe, nobody waits for the readers of project files
    from pytest_remotegpu import recipe as recipes

__all__ = ["KEPT", "Outfit", "names_passed_on"]

OURS: Final = "pytest-remotegpu"
HOOK: Final = "pytest_remotegpu_modal_image"
SAME: Final = ("cloudpickle",)
"""What one version has pickled, another one may not open."""
KEPT: Final = "remotegpu/environments"
"""Where pytest's cache keeps what the last environment was made of; no secret is among it."""
MOST_PLUGINS: Final = 8


def here() -> recipes.Here:
    """Describe this side."""
    from pytest_remotegpu import recipe as recipes  # noqa: PLC0415 -- see the top

    try:
        package, needs = version(OURS), tuple(requires(OURS) or ())
    except PackageNotFoundError:
        package, needs = "", ()
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    same = tuple((name, version(name)) for name in SAME)
    return recipes.Here(python, pytest.__version__, package, needs, same)


def names_passed_on(settings: Settings) -> Iterator[str]:
    """Name the variables that the far side gets."""
    yield from settings.env
    if settings.secrets:
        from pytest_remotegpu.recipe import local_secrets  # noqa: PLC0415 -- few have secrets

        yield from local_secrets(settings.secrets)


class Outfit:
    """The recipe of one session, and what is known of the one before.

    :param environ: the variables of this process, as they were at its start.
    :raises UsageError: for a line of the ini file that is not understood.
    """

    def __init__(
        self, config: pytest.Config, settings: Settings, environ: Mapping[str, str]
    ) -> None:
        self._config = config
        self._settings = settings
        self._read: recipes.Recipe | None = None
        self._whole: recipes.Recipe | None = None
        if any((settings.requirements, settings.image, settings.secrets, settings.volumes)):
            self._check_declared(environ)

    @functools.cached_property
    def _declared(self) -> recipes.Declared:
        from pytest_remotegpu import recipe as recipes  # noqa: PLC0415 -- see the top

        given = self._settings
        return recipes.declare(given.requirements, given.image, given.secrets, given.volumes)

    def _check_declared(self, environ: Mapping[str, str]) -> None:
        for name in self._declared.local_secrets:
            if name not in environ:
                raise UsageError(
                    f"remotegpu_secrets has env:{name}, and this process has no such variable; "
                    f"export {name}, or leave out the line"
                )

    @property
    def local_secrets(self) -> tuple[str, ...]:
        """Names of variables of this process that the far side gets."""
        return self._declared.local_secrets

    def check(self) -> recipes.Recipe:
        """Read the project's files.

        :raises UsageError: where they can't be meant, or can't work with this side's versions.
        """
        from pytest_remotegpu import recipe as recipes  # noqa: PLC0415 -- see the top

        if self._read is None:
            root = self._config.rootpath
            found = recipes.read(root, self._declared, here(), self._settings.preload)
            notes = (*found.notes, *self._unnamed_plugins(found))
            self._read = replace(found, notes=notes)
        return self._read

    def recipe(self) -> recipes.Recipe:
        """Give the recipe, with what the project's hook does to the image.

        :raises UsageError: as :meth:`check`, and where the hook gives something else.
        """
        from pytest_remotegpu import recipe as recipes  # noqa: PLC0415 -- see the top

        if self._whole is None:
            image = recipes.Image(self._config.rootpath)
            given = self._asked(image)
            if given is not None and not isinstance(given, recipes.Image):
                raise UsageError(
                    f"pytest_remotegpu_modal_image returned {type(given).__name__}; return what "
                    'the methods of its image give, such as image.apt_install("git")'
                )
            read, given = self.check(), given or image
            rented = recipes.rents(given.steps)
            costs = (f"{what}, which is in no cost that is shown here" for what in rented)
            notes = (*read.notes, *given.notes, *costs)
            self._whole = replace(read, steps=given.steps, notes=notes)
        return self._whole

    def _asked(self, image: recipes.Image) -> Any:
        """Ask the project's hook.

        :raises UsageError: where it fails, or forgets to return what it has made.
        """
        try:
            given = self._config.hook.pytest_remotegpu_modal_image(config=self._config, image=image)
        except UsageError:
            raise
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            inside = [
                frame for frame in traceback.extract_tb(error.__traceback__) if frame.name == HOOK
            ]
            place = inside[-1] if inside else last
            raise UsageError(
                f"{HOOK} failed at {place.filename}:{place.lineno}: {type(error).__name__}: {error}"
            ) from error
        if given is None and image.made:
            raise UsageError(
                f"{HOOK} returned nothing, though it did {', '.join(image.made)}; each method "
                'gives another image, so end with a return, such as return image.apt_install("git")'
            )
        return given

    def why(self, provider: str, more: Mapping[str, str]) -> list[str]:
        """Say how the recipe differs from the one that was used last.

        :param provider: by name. :param more: what else its environments depend on, by name.
        """
        from pytest_remotegpu import recipe as recipes  # noqa: PLC0415 -- see the top

        now = recipes.to_plain(self.recipe(), more)
        return recipes.why(self._kept().get(provider), now)

    def keep(self, provider: str, more: Mapping[str, str]) -> None:
        """Remember the recipe as one whose environment is there."""
        from pytest_remotegpu import recipe as recipes  # noqa: PLC0415 -- see the top

        cache: Any = getattr(self._config, "cache", None)
        if cache is not None and self._whole is not None:
            plain = recipes.to_plain(self._whole, more)
            cache.set(KEPT, {**self._kept(), provider: plain})

    def _kept(self) -> dict[str, Any]:
        cache: Any = getattr(self._config, "cache", None)
        found = cache.get(KEPT, {}) if cache is not None else {}
        return found if isinstance(found, dict) else {}

    def _unnamed_plugins(self, found: recipes.Recipe) -> Sequence[str]:
        """Name the plugins of this session that nothing asks for over there.

        Where nothing is known of what requirements pull in, those are not told apart.
        """
        from packaging.utils import canonicalize_name  # noqa: PLC0415 -- see the top

        from pytest_remotegpu import recipe as recipes  # noqa: PLC0415 -- see the top

        if not found.uv and not found.files.lines and not found.own:
            return ()
        names = {canonicalize_name(name) for name in recipes.names(found)}
        plugins = {
            f"{dist.project_name} {dist.version}"
            for _plugin, dist in self._config.pluginmanager.list_plugin_distinfo()
            if canonicalize_name(dist.project_name) not in {*names, OURS}
        }
        if not plugins or found.base.dockerfile:
            return ()
        shown = sorted(plugins)[:MOST_PLUGINS]
        more = f" and {len(plugins) - len(shown)} more" if len(plugins) > len(shown) else ""
        note = (
            f"plugins of this session that the far environment does not name: {', '.join(shown)}"
            f"{more}; where tests need them, add them to what remotegpu_requirements names"
        )
        return (note,)
