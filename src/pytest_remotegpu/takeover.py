"""Who takes a session over: whatever fits the part that this process has in it.

Checks that options go together before anything is collected. Knows the plugins by what they are
for; does nothing itself.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pytest_remotegpu import backends, desk, larger
from pytest_remotegpu.backends.base import Backend, Describes, Site
from pytest_remotegpu.backends.warm import Begun
from pytest_remotegpu.blotting import blotted_spec, values_of
from pytest_remotegpu.config import Settings, split_spec
from pytest_remotegpu.control import Control, Requirement
from pytest_remotegpu.distributed import GIVEN, Hub, Node
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.outfit import Outfit, names_passed_on
from pytest_remotegpu.shipping import Start

__all__ = ["make"]


def make(
    config: pytest.Config, settings: Settings, start: tuple[Any, ...], begun: Begun | None = None
) -> object | None:
    """Check what can be checked before collection, and make the plugin.

    :param begun: a worker that was asked for ahead.
    :return: ``None`` where nothing is to be taken over.
    :raises UsageError: for an ill-formed spec, or options that don't go together.
    """
    given = getattr(config, "workerinput", {}).get(GIVEN)
    if hasattr(config, "workerinput") and given is None:
        return None
    backend = None
    outfit = Outfit(config, settings, start[0])
    if settings.spec is not None:
        name, rest = split_spec(settings.spec)
        backend = backends.find(name, rest, _site(config, settings, outfit, begun))
        _hide_secrets(backend, values_of(start[0], names_passed_on(settings)))
        if settings.spec == f"{name}:":
            raise UsageError(
                f"--remote={settings.spec} has nothing behind its colon; write --remote={name} "
                "(is a variable unset in the command?)"
            )
        _check(config, settings, backend, at_terminal=Start(*start).terminal)
    if _distributes(config):
        return _hub(config, settings, backend)
    if given is not None:
        if backend is None:
            raise UsageError(
                "this process of pytest-xdist finds no --remote, and its session has one"
            )
        return _node(config, settings, backend, Start(*start))
    if settings.required and not settings.plan:
        config.pluginmanager.register(Requirement(settings), "remotegpu-required")
    return Control(config, settings, backend, Start(*start))


def _hide_secrets(backend: Backend, values: Sequence[str]) -> None:
    """Let a backend's name be one that may be published, which headers and reports have in them."""
    for attribute in ("name", "where"):
        text = getattr(backend, attribute)
        if (hidden := blotted_spec(text, values)) != text:
            setattr(backend, attribute, hidden)


def _site(config: pytest.Config, settings: Settings, outfit: Outfit, begun: Begun | None) -> Site:
    workerinput: Mapping[str, Any] = getattr(config, "workerinput", {})
    return Site(
        settings.python,
        sys.executable,
        sys.platform,
        root=str(config.rootpath),
        fresh=settings.fresh,
        idle=settings.idle,
        preload=settings.preload,
        run_limit=settings.run_timeout,
        wait=settings.wait,
        workers=int(workerinput.get("workercount", settings.workers)),
        ephemeral=settings.ephemeral,
        chosen=frozenset(each.name for each in settings.origins if each.origin != "default"),
        wanted=outfit,
        prices=settings.prices,
        quiet=config.get_verbosity() < 0,
        capped=bool(settings.max_cost),
        begun=begun,
    )


def _check(
    config: pytest.Config, settings: Settings, backend: Backend, *, at_terminal: bool
) -> None:
    option = config.option
    if getattr(option, "usepdb", False) or getattr(option, "trace", False):
        why = desk.why_nobody(backend, there=at_terminal, distributed=False)
        if why:
            raise UsageError(
                f"--pdb and --trace need a terminal, and shipped tests have none: {why}"
            )
    if config.pluginmanager.is_blocked("reports"):
        raise UsageError(
            "-p no:reports leaves out what pytest writes and reads reports with, and those of "
            f"--remote={settings.spec} have to travel; leave that option out"
        )
    if settings.rev and not backend.ships_tree:
        raise UsageError(
            f"--remote-rev={settings.rev} needs a far side that files are sent to, such as"
            f" ssh:HOST; --remote={settings.spec} runs in the working tree itself"
        )
    if settings.ephemeral and not isinstance(backend, Describes):
        raise UsageError(
            f"--remote-ephemeral is for backends that deploy something, such as modal; "
            f"--remote={settings.spec} does not; --remote-fresh does without a warm process"
        )
    if settings.oom_retry is not None:
        larger.look(backend, settings.oom_retry)
    if settings.required and backend.pretends:
        raise UsageError(
            f"--gpu-required refuses --remote={settings.spec}, which uses no GPU; "
            "name a far side that has one"
        )


def _distributes(config: pytest.Config) -> bool:
    """Say whether pytest-xdist hands the tests of this session to other processes."""
    option = config.option
    given = getattr(option, "tx", None) and getattr(option, "dist", "no") != "no"
    return bool(given) and not option.collectonly and not hasattr(config, "workerinput")


def _hub(config: pytest.Config, settings: Settings, backend: Backend | None) -> Hub | None:
    if settings.plan:
        raise UsageError(
            "--remote-plan needs the tests, and with -n this process collects none; leave out -n"
        )
    if backend is None:
        return None
    if settings.workers > 1:
        raise UsageError(
            f"--remote-workers={settings.workers} and -n do not go together: each process of "
            "pytest-xdist has one worker for each shape, so -n says how many; leave out one"
        )
    for spec in config.option.tx:
        count, star, rest = str(spec).partition("*")
        where = rest if star and count.isascii() and count.isdigit() else str(spec)
        if where.partition("//")[0] != "popen" or "chdir=" in where:
            raise UsageError(
                f"--tx {spec} together with --remote: only processes of this host and folder go "
                "together with it, as -n or --tx popen start them"
            )
    return Hub(config, settings, backend)


def _node(config: pytest.Config, settings: Settings, backend: Backend, start: Start) -> Node:
    workerinput: Mapping[str, Any] = config.workerinput  # type: ignore[attr-defined]
    return Node(config, settings, backend, start, workerinput)
