"""The pytest plugin: options, marker, fixtures, and whatever takes a session over when asked to.

Must not import the rest of this package before a session needs it: whoever merely has it installed
pays nothing for it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_remotegpu.config import Settings

pytest_plugins = ("pytest_remotegpu.bench.plugin",)
RUNNER = "remotegpu-runner"
CONTROLLER = "remotegpu-controller"
INSIDE = "REMOTEGPU_WORKER"
START = pytest.StashKey[Any]()
NO_RUN = (
    "help", "version", "markers", "collectonly", "setupplan", "showfixtures",
    "show_fixtures_per_test", "cacheshow",
)  # fmt: skip
"""Values of pytest's options with which a session runs nothing."""
ARGUMENTS = {
    "--remote": (
        "remotegpu",
        "SPEC",
        "where tests with the gpu mark run: BACKEND[:REST], such as local:cpu or ssh:HOST",
    ),
    "--remote-all": (
        "remote_all",
        None,
        "ship every selected test, not only those with the gpu mark",
    ),
    "--gpu-required": (
        "gpu_required",
        None,
        "a gpu test skipped for lack of a GPU is an error, and so is a run without one",
    ),
    "--remote-plan": (
        "remote_plan",
        None,
        "print each setting with its origin and what would go where; run nothing",
    ),
    "--remote-debug": ("remote_debug", None, "print what the far side is doing"),
    "--remote-artifacts": (
        "remote_artifacts",
        "DIR",
        "the folder for files that tests write to artifacts_dir",
    ),
    "--remote-timeout": (
        "remote_timeout",
        "SECONDS",
        "for one shipped test, set-up and tear-down included (600; 0 for no limit)",
    ),
    "--remote-run-timeout": (
        "remote_run_timeout",
        "SECONDS",
        "for all that runs far away; at the limit the session ends with its reports complete",
    ),
    "--remote-wait": (
        "remote_wait",
        "SECONDS",
        "to wait for cards that others hold (300; 0 for ever)",
    ),
    "--remote-fresh": ("remote_fresh", None, "use no warm process, and leave none behind"),
    "--remote-workers": (
        "remote_workers",
        "N",
        "up to so many workers share the tests that ask for the same GPUs (1)",
    ),
    "--remote-rev": (
        "remote_rev",
        "REF",
        "run the files of this commit on the far side, instead of those of the working tree",
    ),
    "--remote-ephemeral": (
        "remote_ephemeral",
        None,
        "deploy nothing that outlives the session (modal)",
    ),
    "--remote-oom-retry": (
        "remote_oom_retry",
        "TYPE",
        "run a test that lacked GPU memory once more on this type of card, or auto (modal)",
    ),
    "--remote-timeline": ("remote_timeline", None, "print the phases of the run with their times"),
    "--remote-max-cost": (
        "remote_max_cost",
        "USD",
        "for all that runs far away: refused where the run may cost more, and ended at it",
    ),
    "--remote-watch": (
        "remote_watch",
        None,
        "run again after each save what it affects, until Ctrl-C",
    ),
    "--remote-json": ("remote_json", "FILE", "write the run as data: tests, workers, costs"),
}


class Marker:
    """Registers the marker once conftests have had their say."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Leave a project's own ``gpu`` marker alone, in ``--markers`` too."""
        from pytest_remotegpu.selection import OWN_LINE, own_marker

        config.stash[OWN] = own_marker(config.getini("markers"))
        if not config.stash[OWN]:
            config.addinivalue_line("markers", OWN_LINE)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Register what can't collide with a project's own: the long alias and the ini options."""
    pluginmanager.register(Marker(), "remotegpu-marker")
    group = parser.getgroup("remotegpu", "GPU tests on another machine")
    group.addoption("--remotegpu", dest="remotegpu", metavar="SPEC", help="the same as --remote")
    from pytest_remotegpu.config import INI

    for name, (kind, default, text) in INI.items():
        parser.addini(name, text, type=kind, default=default or None)  # type: ignore[arg-type]


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the hooks that others may implement."""
    from pytest_remotegpu import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Iterator[None]:
    """After the conftests: register each option that is used here and that no conftest has."""
    if INSIDE not in os.environ:  # else nothing is shipped, and a copy is a look at all of them
        early_config.stash[START] = (
            dict(os.environ),
            list(sys.path),
            list(sys.argv),
            str(early_config.invocation_params.dir),
            _at_terminal(),
        )
    _forget_value(early_config.known_args_namespace, args)
    there = _leaves_conftests(early_config, args)
    with _watched(early_config, args):
        result = yield
    used = {arg.partition("=")[0] for arg in map(str, args)}
    shows_help = bool(used & {"--help", "-h"})
    group = parser.getgroup("remotegpu")
    for option, (dest, metavar, text) in ARGUMENTS.items():
        if (option in used or shows_help) and not _is_taken(parser, args, option, metavar):
            kind: dict[str, Any] = (
                {"action": "store_true"} if metavar is None else {"metavar": metavar}
            )
            group.addoption(option, dest=dest, help=text, default=None, **kind)
    if there:
        from pytest_remotegpu import conftests

        conftests.leave_out(early_config, parser, args)
    return result


def _at_terminal() -> bool:
    """Say whether somebody may sit at a terminal, for a look that costs nothing."""
    try:
        return os.isatty(0) and os.isatty(1)
    except OSError:
        return False


def _leaves_conftests(config: pytest.Config, args: list[str]) -> bool:
    """Load no conftest here where the far side is to load them; say whether that is so."""
    if str(config.getini("remotegpu_conftest") or "").strip() != "far" or INSIDE in os.environ:
        return False
    from pytest_remotegpu import conftests

    known = config.known_args_namespace
    if not conftests.is_asked(config, args, os.environ) or known.help or known.version:
        return False
    known.noconftest = True
    return True


@contextlib.contextmanager
def _watched(config: pytest.Config, args: list[str]) -> Iterator[None]:
    """See what initial conftests cost that import torch, and help where one can't be imported."""
    before, began, memory = "torch" in sys.modules, time.monotonic(), _peak()
    try:
        yield
    except Exception as error:
        from pytest_remotegpu import conftests

        if conftests.is_asked(config, args, os.environ):
            conftests.hint(error)
        raise
    if not before and "torch" in sys.modules and INSIDE not in os.environ:
        from pytest_remotegpu import conftests

        spent = time.monotonic() - began, _peak() - memory
        config.stash[conftests.COST] = conftests.cost(config.pluginmanager, *spent)


def _peak() -> float:
    """Give the most memory that this process has had, in MiB; 0 where that can't be had."""
    try:
        import resource
    except ImportError:  # Windows has none
        return 0.0
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage / 2**20 if sys.platform == "darwin" else usage / 2**10


def _forget_value(known: Any, args: list[str]) -> None:
    """Let the word after ``--remote`` be no path, for which pytest takes it as yet.

    A path there would hide the ini option ``testpaths``, and the conftests that it leads to.
    """
    paths = getattr(known, "file_or_dir", None)
    for word, value in itertools.pairwise(map(str, args)):
        if word == "--remote" and paths and value in paths:
            from pytest_remotegpu import conftests

            if not conftests.is_path(value):
                paths.remove(value)


def _is_taken(parser: pytest.Parser, args: list[str], option: str, metavar: str | None) -> bool:
    """Say whether a conftest has registered this option.

    The other arguments are parsed along with it, since some of them may be required.
    """
    probe = f"{option}=probe" if metavar else option
    try:
        parser.parse_known_and_unknown_args(args)
    except pytest.UsageError:
        return False  # pytest's own parsing will say what is wrong
    try:
        _known, unknown = parser.parse_known_and_unknown_args([probe, *args])
    except pytest.UsageError:
        return True  # an option of this name that takes no value
    return probe not in unknown


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the controller where a far side is asked for."""
    if config.pluginmanager.has_plugin(RUNNER) or INSIDE in os.environ:
        return
    from pytest_remotegpu.errors import UsageError

    try:
        control = _control(config)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    if control is not None:
        config.pluginmanager.register(control, CONTROLLER)


OWN = pytest.StashKey[bool]()
SETTINGS = pytest.StashKey[Any]()


def _ini(config: pytest.Config, names: Iterable[str]) -> dict[str, Any]:
    """Read the ini options that are set.

    :raises UsageError: for one whose value is none of its kind.
    """
    from pytest_remotegpu.errors import UsageError

    values = {}
    for name in names:
        try:
            value = config.getini(name)
        except (ValueError, TypeError) as error:
            raise UsageError(f"ini option {name}: {error}") from None
        if value:
            values[name] = value
    return values


def settings_of(config: pytest.Config) -> Settings:
    """Resolve the settings of a session, once.

    :raises UsageError: for a value that can't be read.
    """
    if SETTINGS not in config.stash:
        from pytest_remotegpu.config import INI, OPTIONS, resolve

        given = {name: getattr(config.option, name, None) for name in OPTIONS}
        ini = _ini(config, INI)
        environ = config.stash.get(START, (os.environ,))[0]
        config.stash[SETTINGS] = resolve(given, environ, ini)
    settings: Settings = config.stash[SETTINGS]
    return settings


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Refuse what would go its own way before any session is configured, or start the loop."""
    if _is_watched(config):
        return _watch(config)
    if not getattr(config.option, "looponfail", False):
        return None
    from pytest_remotegpu.errors import UsageError

    try:
        spec = settings_of(config).spec
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    if spec is not None:
        raise pytest.UsageError("--looponfail and --remote do not go together; leave out one")
    return None


def _is_watched(config: pytest.Config) -> bool:
    """Say whether this process is to start one session after the other, and to be none itself."""
    option = config.option
    is_run = getattr(option, "remotegpu_run", None) is not None
    inside = hasattr(config, "workerinput") or INSIDE in os.environ
    wanted = getattr(option, "remote_watch", False) and not inside and not is_run
    return bool(wanted) and not (option.help or option.version)


def _watch(config: pytest.Config) -> int:
    from pytest_remotegpu import watching
    from pytest_remotegpu.errors import UsageError

    try:
        return watching.loop(config, settings_of(config))
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


def _control(config: pytest.Config) -> object | None:
    settings = settings_of(config)
    if settings.artifacts:
        from pytest_remotegpu.inplace import check_artifacts_root

        check_artifacts_root(config, settings.artifacts)
    if settings.json is not None and not hasattr(config, "workerinput"):
        from pytest_remotegpu.recorder import Recorder

        config.pluginmanager.register(Recorder(config, settings), "remotegpu-recorder")
    if settings.spec is None and not settings.plan:
        return None
    begun = _ask_ahead(config, settings)
    try:
        from pytest_remotegpu.takeover import make

        return make(config, settings, config.stash[START], begun)
    except BaseException:
        if begun is not None:
            begun.close()
        raise


def _ask_ahead(config: pytest.Config, settings: Settings) -> Any:
    """Have a warm process of this host make ready what a session will need that runs tests."""
    option = config.option
    spread = hasattr(config, "workerinput") or getattr(option, "dist", "no") != "no"
    idle = any(getattr(option, name, None) for name in NO_RUN)
    if not str(settings.spec).startswith("local") or spread or idle or settings.plan:
        return None
    from pytest_remotegpu import ahead

    return ahead.ask(settings, config.stash[START][0], str(config.rootpath))


def _in_place(config: pytest.Config) -> bool:
    """Say whether this is a plain session: it has no far side, and is none itself."""
    return not config.pluginmanager.has_plugin(CONTROLLER) and not config.pluginmanager.has_plugin(
        RUNNER
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a far side: skip marked tests for which this host has not enough GPUs."""
    if not _in_place(config):
        return
    settings = settings_of(config)
    if not settings.required and not any(item.get_closest_marker("gpu") for item in items):
        return
    from pytest_remotegpu import inplace

    inplace.judge(
        config,
        items,
        own=config.stash.get(OWN, False),
        required=settings.required,
        within=settings.spec is not None and INSIDE in os.environ,
    )


@pytest.fixture
def artifacts_dir(request: pytest.FixtureRequest) -> Path:
    """A folder of this test's own; what is written there is kept, wherever the test ran."""
    from pytest_remotegpu import inplace

    return inplace.artifacts_dir(request.node)


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> Any:
    """The GPUs of this test: ``type``, ``count``, ``memory`` (bytes of one), ``devices``."""
    from pytest_remotegpu import inplace

    return inplace.gpu_of(request)


@pytest.fixture
def gpu_devices(gpu: Any) -> Any:
    """The ``torch.device`` of each GPU that this test was given; the CPU under ``local:cpu``."""
    return list(gpu.devices)


@pytest.fixture
def gpu_device(gpu_devices: Any) -> Any:
    """The first ``torch.device`` that this test was given."""
    return gpu_devices[0]


@pytest.fixture
def rank(request: pytest.FixtureRequest) -> int:
    """The number of this process among the ranks of the test; 0 where it runs alone."""
    from pytest_remotegpu import inplace

    return inplace.rank_of(request)[0]


@pytest.fixture
def world_size(request: pytest.FixtureRequest) -> int:
    """How many processes run the test together; 1 where it runs alone."""
    from pytest_remotegpu import inplace

    return inplace.rank_of(request)[1]


@pytest.fixture
def rank_group(request: pytest.FixtureRequest) -> Any:
    """The ``torch.distributed`` group of all ranks of this test, shared with tests beside it."""
    from pytest_remotegpu import groups

    return groups.rank_group(request)
