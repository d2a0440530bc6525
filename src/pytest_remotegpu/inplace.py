"""What a test sees of its GPUs in its own process, and what becomes of it without them.

Must not know backends or workers: it serves sessions that have none, and the inside of a worker.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from pytest_remotegpu import cards, gpu
from pytest_remotegpu.errors import MarkerError, UsageError
from pytest_remotegpu.outputs import OWN, clear, folder_name, in_the_way, make
from pytest_remotegpu.selection import own_marker, runs_nothing, shape_of
from pytest_remotegpu.summary import RunSummary

__all__ = [
    "Gpus",
    "artifacts_dir",
    "artifacts_root",
    "check_artifacts_root",
    "count_files",
    "gpu_of",
    "has_run",
    "judge",
    "rank_of",
    "require_gpu",
]

NAME = "remotegpu-inplace"
RUNNER = "remotegpu-runner"
GPUS, VARIABLES, RANKS = "GPUs", "variables", "ranks"
"""What a host may lack, and for each the way to run what it can't."""
WAYS = {GPUS: "--remote=SPEC", VARIABLES: "--remote=local", RANKS: "--remote=local"}
WITHIN = "a session within a shipped test ships nothing"
RANK, WORLD = "RANK", "WORLD_SIZE"


class Gpus(Struct, frozen=True):
    """The GPUs of one test.

    :ivar type: the card's name, ``pretend`` where the host pretends.
    :ivar count: how many.
    :ivar memory: bytes of one card; ``None`` where it is not known.
    :ivar devices: a ``torch.device`` each.
    """

    type: str
    count: int
    memory: int | None
    devices: tuple[Any, ...]


class InPlace:
    """Registered once there is something to say of a session that runs marked tests here.

    :ivar within: whether a far side is asked for, and a shipped test is what asks.
    :ivar lacking: how many marked tests were skipped for each thing that this host lacks.
    :ivar missing: for each test that is an error for that reason, the reason.
    :ivar marked: the ids of the tests that run on this host's GPUs.
    :ivar kept: the folders that tests asked for to keep files in.
    """

    def __init__(self) -> None:
        self.required = False
        self.within = False
        self.lacking: Counter[str] = Counter()
        self.missing: dict[pytest.Item, str] = {}
        self.marked: set[str] = set()
        self.kept: list[Path] = []
        self.ran = 0
        self._told = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Make an error of a test that would have been skipped."""
        if item in self.missing:
            pytest.fail(self.missing[item], pytrace=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the marked tests that ran."""
        self.ran += report.nodeid in self.marked and has_run(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Let no session pass that had to use a GPU and has not."""
        if self.required and not hasattr(session.config, "workerinput"):
            require_gpu(session, self.ran)

    def pytest_remotegpu_summary(self, summary: RunSummary) -> None:
        """Count the files of tests that ran here with those that came back."""
        files = self._files()
        summary.artifacts += len(files)
        root = self.kept[0].parent if self.kept else Path()
        summary.artifact_names += sorted(path.relative_to(root).as_posix() for path in files)
        self._told = True

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Count the skips of this kind apart from others, and say where files were kept."""
        for thing, number in self.lacking.items():
            tests = f"{number} gpu test{'s' if number != 1 else ''}"
            way = WITHIN if self.within else f"pytest {WAYS[thing]} runs them"
            terminalreporter.write_line(f"{tests} skipped for lack of {thing} on this host; {way}")
        files = self._files()
        if files and not self._told:
            terminalreporter.write_line(f"artifacts: {len(files)} in {self.kept[0].parent}")

    def _files(self) -> list[Path]:
        return [path for top in self.kept for path in top.rglob("*") if _is_plain(path)]


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def has_run(report: pytest.TestReport) -> bool:
    """Say whether a report is that of a test's own body, which was not skipped."""
    return report.when == "call" and (not report.skipped or hasattr(report, "wasxfail"))


def holds_context() -> bool:
    """Say whether this very process has started to use a card, by torch; imports nothing."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    ask = getattr(cuda, "is_initialized", None)
    return bool(ask is not None and ask())


def require_gpu(session: pytest.Session, ran: int) -> None:
    """Fail a session that would pass although ``ran``, the tests that used a GPU, is 0."""
    if ran or session.exitstatus != pytest.ExitCode.OK or runs_nothing(session.config):
        return
    session.exitstatus = pytest.ExitCode.TESTS_FAILED
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        reporter.write_line("ERROR: --gpu-required: no test with the gpu mark ran on a GPU")


def _in_place(config: pytest.Config) -> InPlace:
    plugin: Any = config.pluginmanager.get_plugin(NAME)
    if plugin is None:
        plugin = InPlace()
        config.pluginmanager.register(plugin, NAME)
    found: InPlace = plugin
    return found


def judge(
    config: pytest.Config,
    items: list[pytest.Item],
    *,
    own: bool,
    required: bool,
    within: bool = False,
) -> None:
    """Skip, or fail, marked tests that this host can't run; a project's own policy stands above.

    :param own: whether the project registers a ``gpu`` marker.
    :param required: whether a skip is an error.
    :param within: whether a far side is asked for, and a shipped test is what asks.
    """
    own = own or own_marker(config.getini("markers"))
    if own and not required:
        return
    host = Host(os.environ)
    plugin = _in_place(config)
    plugin.required, plugin.within = required, within
    for item in items:
        shape = _shape(item, required=required)
        if shape is None:
            continue
        thing, lack = host.lacks(shape)
        if not thing:
            plugin.marked.add(item.nodeid)
            continue
        way = WITHIN if within else f"run it with {WAYS[thing]} (see pytest --help)"
        reason = f"needs {shape}, {lack}; {way}"
        if required:
            plugin.missing[item] = reason
        else:
            plugin.lacking[thing] += 1
            item.add_marker(pytest.mark.skip(reason=reason))


class Host:
    """What the tests of this process have: cards, and the variables that it was started with.

    :param environ: these variables.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._cards = cards.visible(environ)
        self._certain = cards.certain(environ, self._cards)
        self._hidden = cards.restriction(environ)

    def lacks(self, shape: gpu.Shape) -> tuple[str, str]:
        """Say what a test of this shape lacks here, as a key of :data:`WAYS` and in words.

        :return: two empty texts where it has all that it needs.
        """
        enough = self._misses(shape)
        if enough is not None:
            return GPUS, f"this host shows {self._shown()}{self._hidden}{enough}"
        if shape.launcher and self._environ.get(WORLD) != str(shape.ranks):
            return RANKS, f"this process is none of {shape.ranks} ranks"
        unset = [name for name, value in shape.env if self._environ.get(name) != value]
        if unset:
            return VARIABLES, f"this process has another {', '.join(unset)}, or none"
        return "", ""

    def _misses(self, shape: gpu.Shape) -> str | None:
        """Say why the cards won't do, beyond their number; ``None`` where they will.

        A test takes the first cards that it sees. Where their order is not certain, all must do.
        """
        if len(self._cards) < shape.count:
            return ""
        taken = self._cards[: shape.count] if self._certain else self._cards
        reasons = [text for card in taken if (text := cards.misfit(card, shape))]
        if not reasons:
            return None
        fitting = [card.uuid for card in self._cards if not cards.misfit(card, shape)]
        if len(fitting) < shape.count:
            return f"; {reasons[0]}"
        chosen = ",".join(fitting[: shape.count])
        return f"; {reasons[0]}, but CUDA_VISIBLE_DEVICES={chosen} would show what does"

    def _shown(self) -> str:
        kinds = Counter(card.name or "unknown card" for card in self._cards)
        return ", ".join(f"{number} x {name}" for name, number in kinds.items()) or "0"


def _shape(item: pytest.Item, *, required: bool) -> gpu.Shape | None:
    """Read a test's marks; one whose arguments are none of ours means something else."""
    try:
        return shape_of(item, {})
    except MarkerError as error:
        if required:
            raise pytest.UsageError(f"{item.nodeid}: {error}") from None
        return None


def artifacts_root(config: pytest.Config, given: str | None) -> Path:
    """Name the folder for artifacts: the one that was asked for, else one in pytest's cache.

    Where there is none, as with ``-p no:cacheprovider``, it is one beside that: a later session
    would take a folder that pytest has not made for its cache, without what keeps that out of
    version control.
    """
    if given:
        return Path(config.invocation_params.dir, given)
    cache = getattr(config, "cache", None)
    folder = config.rootpath / OWN
    if cache is not None:
        with contextlib.suppress(OSError):
            folder = cache.mkdir("remotegpu")
    return folder / "artifacts"


def check_artifacts_root(config: pytest.Config, given: str) -> None:
    """See that the folder that was asked for is not a file.

    :raises UsageError: where it is, or lies below one.
    """
    blocking = in_the_way(artifacts_root(config, given))
    if blocking is not None:
        raise UsageError(
            f"--remote-artifacts={given!r} can be no folder, since {str(blocking)!r} is none; "
            "name a folder, or one that does not exist yet"
        )


def count_files(config: pytest.Config, summary: RunSummary) -> None:
    """Count the files of tests that ran in this process, where nobody asks for a summary here."""
    plugin: Any = config.pluginmanager.get_plugin(NAME)
    if plugin is not None:
        plugin.pytest_remotegpu_summary(summary)


def artifacts_dir(item: pytest.Item) -> Path:
    """Make the folder of a test that runs.

    :raises pytest.fail.Exception: where it can't be made.
    """
    config = item.config
    runner: Any = config.pluginmanager.get_plugin(RUNNER)
    if runner is not None:
        folder = Path(runner.site.artifacts, str(runner.current))
        if runner.site.rank >= 0:
            folder /= f"rank{runner.site.rank}"
    else:
        root = artifacts_root(config, getattr(config.option, "remote_artifacts", None))
        trouble = clear(root, [item.nodeid])
        if trouble:
            pytest.fail(trouble, pytrace=False)
        folder = root / folder_name(item.nodeid)
        _in_place(config).kept.append(folder)
    try:
        make(folder)
    except OSError as error:
        pytest.fail(f"there can be no artifacts_dir: {error}", pytrace=False)
    return folder


def rank_of(request: pytest.FixtureRequest) -> tuple[int, int]:
    """Give the number of this process among those that run the test, and how many these are."""
    runner: Any = request.config.pluginmanager.get_plugin(RUNNER)
    if runner is not None:
        launch = runner.order.launch
        return (runner.site.rank, launch.ranks) if launch is not None else (0, 1)
    rank, world = os.environ.get(RANK, ""), os.environ.get(WORLD, "")
    return (int(rank), int(world)) if rank.isdecimal() and world.isdecimal() else (0, 1)


def gpu_of(request: pytest.FixtureRequest) -> Gpus:
    """Describe the requesting test's GPUs; imports torch."""
    try:
        shape = shape_of(request.node, {}) or gpu.Shape(0)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    runner: Any = request.config.pluginmanager.get_plugin(RUNNER)
    rank, world = rank_of(request) if shape.launcher else (0, 1)
    count = (runner.order.gpus if runner is not None else shape.count) // world
    if count == 0:
        pytest.fail(
            "the gpu fixtures are for tests with the gpu mark, which this one has not",
            pytrace=False,
        )
    torch = pytest.importorskip(
        "torch", reason="the gpu fixtures need torch, which is not installed there"
    )
    if runner is not None and runner.site.pretend is not None:
        return Gpus("pretend", count, None, tuple(torch.device("cpu") for _ in range(count)))
    places = range(rank * count, (rank + 1) * count)
    if torch.cuda.device_count() < places.stop:
        pytest.fail(
            f"{places.stop} GPUs were promised and torch sees {torch.cuda.device_count()}",
            pytrace=False,
        )
    first = torch.cuda.get_device_properties(places.start)
    devices = tuple(torch.device("cuda", index) for index in places)
    return Gpus(first.name, count, first.total_memory, devices)
