"""What an order holds: made of the session's options and the tests; sends nothing itself.

Reads pytest's configuration; knows the wire's orders, no backend and no worker's state.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import secrets
import shlex
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import cloudpickle
import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_remotegpu import (
    attempts,
    audience,
    blotting,
    covered,
    desk,
    environment,
    importpath,
    snapshot,
    trees,
)
from pytest_remotegpu.candidates import folders_of
from pytest_remotegpu.collection import Collection
from pytest_remotegpu.config import Settings
from pytest_remotegpu.controller import Worker
from pytest_remotegpu.editors import REPORTERS, asks_comparisons
from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.explaining import Explaining
from pytest_remotegpu.further import Further, imported_there, sendable
from pytest_remotegpu.outfit import names_passed_on
from pytest_remotegpu.protocol import orders
from pytest_remotegpu.reports import Shipped
from pytest_remotegpu.trees import Sent

__all__ = ["Sender", "Shipping", "Start"]

OURS: Final = (
    "remotegpu", "remote_all", "gpu_required", "remote_plan", "remote_debug", "remote_artifacts",
    "remote_timeout", "remote_run_timeout", "remote_wait", "remote_fresh", "remote_timeline",
    "remote_max_cost", "remote_json", "remote_workers", "remote_rev", "remote_ephemeral",
    "remote_watch", "remotegpu_run", "remote_oom_retry",
)  # fmt: skip

FOLDERS: Final = {"allure_report_dir": "", "memray_bin_path": "far"}
"""Options of plugins that name a folder into which each process writes files of its own, with where
in it those from another machine go: apart, where the plugin would read them here."""
HANDED_ON: Final = ("COVERAGE_PROCESS_CONFIG", "MEMRAY_RESULT_PATH")
"""Variables by which plugins tell their processes on this host where results are put together."""
LEFT_OUT: Final = (*REPORTERS, "pytest_remotegpu.rerun")
"""Plugins that act on this side only."""


class Start(Struct, frozen=True):
    """What the process was before any conftest was imported.

    :ivar environ: its variables.
    :ivar path: its import path.
    :ivar argv: its arguments.
    :ivar cwd: its folder.
    :ivar terminal: whether somebody sits at its terminal.
    """

    environ: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    path: list[str] = field(default_factory=lambda: list(sys.path))
    argv: list[str] = field(default_factory=lambda: list(sys.argv))
    cwd: str = field(default_factory=os.getcwd)
    terminal: bool = False


class Sender(Struct, frozen=True):
    """This process, where it is one of several that pytest-xdist has for one session.

    :ivar worker: what pytest-xdist calls it; empty where the session has this process only.
    :ivar workers: how many there are. :ivar run: the session's id. :ivar argv: its arguments.
    :ivar gone: seconds that dead processes were there in whose place this one has come.
    :ivar ends: how many those were.
    """

    worker: str = ""
    workers: int = 0
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    argv: list[str] = field(default_factory=list)
    gone: float = 0.0
    ends: int = 0


class Shipping:
    """Builds the orders of one session.

    :param ships_tree: whether the project's files travel.
    :param names_cards: whether the far side is to look for the types that marks name.
    :ivar failures: explains those of the far side.
    :ivar nobody: why debuggers there get no terminal; empty where they do.
    :ivar unimported: test files that this side leaves to that one to import.
    """

    def __init__(
        self,
        config: pytest.Config,
        settings: Settings,
        start: Start,
        collection: Collection,
        *,
        ships_tree: bool,
        names_cards: bool,
        sender: Sender,
    ) -> None:
        self._config = config
        self._settings = settings
        self.start = start
        self._collection = collection
        self._ships_tree = ships_tree
        self._names_cards = names_cards
        self.sender = sender
        self.snapshot: snapshot.Snapshot | None = None
        self.further = Further()
        self.unimported: list[Path] = []
        self._revision: trees.Revision | None = None
        self._asked: snapshot.Asked | None = None
        self._parsed = {
            name: list(value) if isinstance(value, list) else value
            for name, value in vars(config.option).items()
        }
        self.notes: list[str] = []
        self.failures = Explaining(
            config.rootpath, start.cwd, settings, self.further, same=not ships_tree
        )
        self.measures = False
        self.nobody = ""

    def take_snapshot(self) -> None:
        """List the project's files where they have to travel.

        :raises UsageError: where they are too large, or this session's folder is not among them.
        """
        if not self._ships_tree or self.snapshot is not None:
            return
        asked = self._settings
        rules = trees.rules(asked, self._config.rootpath, self.start.cwd)
        if asked.rev:
            self._revision = trees.Revision(self._config.rootpath, asked.rev)
            self.snapshot = self._revision.take(rules)
            self.notes += self._revision.notes
            self.failures.why_left_out = self._revision.why_left_out
        else:
            self.snapshot = snapshot.take(self._config.rootpath, rules, self._memory())
            self.failures.why_left_out = self.snapshot.why_left_out
        self.notes += self.snapshot.notes
        self._take_further(self._settings.max_upload - self.snapshot.size)
        if self._far_cwd() is None:
            raise UsageError(
                f"the working directory {self.start.cwd!r} is outside the project "
                f"{str(self._config.rootpath)!r}, which is what is sent, and not above it; run "
                "pytest inside it"
            )

    def _take_further(self, left: int) -> None:
        """List the files of editable installs that lie elsewhere, and that this project needs.

        :param left: bytes that they may have.
        :raises UsageError: where they have more.
        """
        from pytest_remotegpu import editables  # noqa: PLC0415 -- only where files are sent

        root, path = self._config.rootpath, self.start.path
        installed = editables.find(importlib.metadata.distributions(), path)
        modules = {
            name: file
            for name, module in list(sys.modules.items())  # some would import more when asked
            if isinstance(file := getattr(module, "__dict__", {}).get("__file__"), str)
        }
        served = environment.redirected(sys.meta_path, sys.modules)
        if self.unimported and (outside := editables.outside(installed, root)):
            folders, now = folders_of(self._config), [*path, *sys.path]
            there = imported_there(self.unimported, root, folders, outside, now, served)
            modules = environment.built(sys.meta_path) | there | modules
        found = editables.needed(installed, root, modules.values(), editables.requires)
        sent, notes = sendable(found, root, path, served, modules)
        self.notes += notes
        self.further.take(sent, left, self._memory, self._revision_of)
        self.notes += self.further.notes

    def _revision_of(self, folder: Path) -> trees.Revision | None:
        """Give a folder's files at the commit that is asked for, if it is of the same checkout."""
        if self._revision is None:
            return None
        checkout = snapshot.checkout_of(self._config.rootpath)
        if checkout and checkout == snapshot.checkout_of(folder):
            return trees.Revision(folder, self._settings.rev)
        self.notes.append(
            f"{str(folder)!r}, installed here in editable mode, is sent as it is: it is of another"
            f" repository than the project, and --remote-rev={self._settings.rev} of that one's"
        )
        return None

    def _far_cwd(self) -> str | None:
        """Give the working directory as seen from the project's root; ``None`` where it can't be.

        Above the root, in a folder that is there for this session only, nothing else is sent.
        """
        root, cwd = self._config.rootpath, Path(self.start.cwd)
        if cwd.is_relative_to(root):
            return str(cwd.relative_to(root))
        above = len(root.relative_to(cwd).parts) if root.is_relative_to(cwd) else 0
        return str(Path(*[".."] * above)) if above else None

    def _memory(self, name: str = "snapshot") -> Path | None:
        """Name the file in which the last snapshot is remembered, in pytest's cache."""
        cache = getattr(self._config, "cache", None)
        try:
            return None if cache is None else Path(cache.mkdir("remotegpu"), name)
        except OSError:
            return None

    def supply(
        self, digests: Iterable[str], send: Callable[..., None], note: Callable[[str], None]
    ) -> Sent:
        """Send contents that a far side lacks.

        :param send: takes messages. :param note: takes what the user should know.
        :raises ProtocolError: for contents that are no part of what was announced.
        """
        return trees.supply(self.snapshot, digests, send, note, self.further.snapshots)

    def ask_for_commit(self) -> None:
        """Have git find out what this project is at."""
        if self._asked is None and not self._settings.rev:
            self._asked = snapshot.Asked(self._config.rootpath)

    def commit(self) -> str:
        """Name the commit that the files are of, and what differs from it; empty for none."""
        if self._revision is not None:
            return self._revision.commit
        content = self.snapshot.manifest.digest if self.snapshot is not None else ""
        return self._asked.answer(content) if self._asked is not None else ""

    def close(self) -> None:
        """Leave no file and no process behind."""
        if self._asked is not None:
            self._asked.drop()
        if self._revision is not None:
            self._revision.close()
        self.further.close()

    def remember(self) -> None:
        """Write down what makes the next session's snapshot quick."""
        if self.snapshot is not None:
            self.snapshot.remember()
            self.further.remember()

    def environ(self) -> dict[str, str]:
        """Give the variables for the far side, as hooks have left them."""
        variables = self.named_variables()
        if not self._ships_tree:
            variables |= {name: os.environ[name] for name in HANDED_ON if name in os.environ}
        self._config.hook.pytest_remotegpu_environment(config=self._config, environment=variables)
        return variables

    def named_variables(self) -> dict[str, str]:
        """Give the variables for the far side that settings name."""
        variables = dict(self.start.environ)
        if not self._ships_tree:
            return variables
        return environment.passed_on(variables, names_passed_on(self._settings))

    def blotted(self, text: str) -> str:
        """Blot out secrets in what may be published: values that are passed on are some."""
        return blotting.blotted(text, self._secrets)

    def blotted_command(self, words: Sequence[str]) -> str:
        """Do so in the words of a command."""
        return shlex.join(blotting.blotted_words(words, self._secrets))

    @functools.cached_property
    def _secrets(self) -> list[str]:
        return blotting.values_of(self.start.environ, names_passed_on(self._settings))

    def order(
        self,
        worker: Worker,
        tests: list[Shipped],
        run: orders.Run,
        variables: dict[str, str],
        workers: int,
        *,
        files: list[str] | None = None,
    ) -> orders.Order:
        """Build the order for one worker.

        :param variables: as :meth:`environ` gave them.
        :param workers: how many workers this process has.
        :param files: those that it is to collect first; ``None`` where the tests are known.
        """
        items = [test.item for test in tests]
        ids = tuple(self._collection.id_of(item) for item in items)
        draft: dict[str, Any] = {
            "args": self._arguments(),
            "variables": self._with_path(variables),
            "gpus": worker.shape.count,
            "ids": ids,
        }
        self._config.hook.pytest_remotegpu_order(config=self._config, order=draft)
        here, root = not self._ships_tree, self._config.rootpath
        return orders.Order(
            worker=worker.name,
            nonce=worker.nonce,
            gpus=worker.shape.count,
            cwd=self.start.cwd if here else self._far_cwd() or ".",
            root=str(root),
            tree=None if self.snapshot is None else self._tree(self.snapshot),
            variables=({} if here else draft["variables"]) | dict(worker.shape.env),
            environ=draft["variables"] if here else None,
            options=self._options(
                draft["args"],
                self._collection.files(items) if files is None else files,
                workers,
                by_id=files is None,
            ),
            max_artifact=self._settings.max_artifact,
            payload=self._payload(list(ids), [n for n, test in enumerate(tests) if test.alone]),
            run=run,
            needs=orders.Needs.of(worker.shape, named=self._names_cards),
            limits=self._limits(tests),
            further=self.further.announce(socket.gethostname()),
            collects=files is not None,
            launch=orders.Launch.of(worker.shape),
        )

    def _tree(self, taken: snapshot.Snapshot) -> orders.Tree:
        root = self._config.rootpath
        above = Path(self._far_cwd() or ".").parts.count("..")
        name = "/".join(part for part in root.parts[-above - 1 :] if part != root.anchor)
        return trees.announce(taken, f"{socket.gethostname()}:{root}", name)

    def _limits(self, tests: list[Shipped]) -> orders.Limits:
        own = {place: test.timeout for place, test in enumerate(tests) if test.timeout is not None}
        again = attempts.allowed(self._config, [test.item for test in tests])
        limits = orders.Limits(timeout=self._settings.timeout, wait=self._settings.wait)
        return replace(limits, tests=own, again=again)

    @property
    def shows_live(self) -> bool:
        """Whether the output of tests is shown while they run; pytest-xdist never does."""
        alone = not self.sender.worker
        return alone and self._config.getoption("capture", "fd") in ("no", "tee-sys")

    def _with_path(self, variables: dict[str, str]) -> dict[str, str]:
        """Add the import path of processes that a test starts, where that is not theirs anyway."""
        if not self._ships_tree:
            return dict(variables)
        start = self.start
        return importpath.with_own(variables, start.path, start.environ, start.cwd, self._roots())

    def _options(
        self, args: list[str], files: list[str], workers: int, *, by_id: bool
    ) -> orders.Options:
        """Say how the far session is to be: as this one, where a user could see the difference."""
        config = self._config
        return orders.Options(
            args=args,
            argv=self.start.argv,
            files=files,
            keep_args=bool(config.option.pyargs)
            or (by_id and any("::" in arg for arg in config.args)),
            roots=not by_id and self._settings.conftest_far,
            sys_path=self._import_path(),
            whole_path=not self._ships_tree and not self._settings.python,
            umask=_umask(),
            color="yes" if audience.markup(config) else "no",
            width=audience.width(config),
            live=self.shows_live,
            log_level=audience.log_level(self._config),
            junit="" if self.sender.worker else audience.junit_family(self._config),
            workers=self.sender.workers or workers,
            run=self.sender.run,
            shown_worker=self.sender.worker,
            shown_argv=self.sender.argv or self.start.argv,
            python=environment.interpreter_options(sys.orig_argv),
            coverage=self._coverage(),
            terminal="" if self.nobody else os.environ.get("TERM", "") or "dumb",
            nobody=self.nobody,
            screen=(24, 80) if self.nobody else desk.screen(),
            folders=list(self.folders),
        )

    @property
    def folders(self) -> dict[str, Path]:
        """Where plugins write that is not there for them on the far side, by the option's name."""
        found = {name: self._config.getoption(name, None) for name in FOLDERS}
        if not self._ships_tree:
            return {}
        cwd = self.start.cwd
        return {name: Path(cwd, value, FOLDERS[name]) for name, value in found.items() if value}

    @property
    def max_artifact(self) -> int:
        """How many bytes one test may leave."""
        return self._settings.max_artifact

    def _coverage(self) -> orders.Coverage | None:
        """Say what of the tests' code is to be measured there: what is measured here."""
        asked = covered.wanted(by_pytest_cov=self._config.pluginmanager.has_plugin("_cov"))
        self.measures = self.measures or asked is not None
        return asked

    def _import_path(self) -> list[str]:
        """Give the entries of the import path in what is sent, those of editable installs too.

        Where nothing is sent, these are all, or those that are not this interpreter's own.
        """
        if not self._ships_tree:
            path = self.start.path
            return importpath.beside_interpreter(path) if self._settings.python else path
        found, odd = importpath.of_session(self.start.path, self._roots())
        self.notes += [
            f"module {name!r} is installed here by an import hook from a folder of another name;"
            " the far side can't import it unless it is installed there"
            for name in odd
        ]
        return found

    def _roots(self) -> list[Path]:
        return [self._config.rootpath, *self.further.roots]

    def _arguments(self) -> list[str]:
        """Give the far session's command line: this one's, less editors' reporters and coverage."""
        kept: list[str] = []
        arguments = list(self._config.invocation_params.args)
        for argument in map(str, arguments):
            if argument.startswith("--remotegpu-run="):
                continue
            if argument in LEFT_OUT and kept and kept[-1] == "-p":
                kept.pop()
            elif not argument.startswith("-p") or argument[2:] not in LEFT_OUT:
                kept.append(argument)
        if self._config.pluginmanager.has_plugin("pytest_cov"):
            kept.append("--no-cov")
        own = self._config.getoption("basetemp", None)
        if self.sender.worker and own and not self._ships_tree:
            kept.append(f"--basetemp={own}")
        return kept

    def _payload(self, ids: list[str], alone: list[int]) -> bytes:
        """Pickle what only the runner opens: ids, which run ``alone``, and changed options."""
        plain: dict[str, Any] = {}
        blobs: dict[str, bytes] = {}
        if asks_comparisons(self._config):
            plain["remotegpu_compares"] = True
        for name, value in self._changed_options():
            if _is_plain(value):
                plain[name] = value
                continue
            try:
                blobs[name] = cloudpickle.dumps(value)
            except Exception as error:  # noqa: BLE001 -- a user's __reduce__ may raise anything
                self.notes.append(
                    f"option {name!r} keeps its default on the far side: its value can't be sent "
                    f"({type(error).__name__}: {error})"
                )
        said = {"ids": ids, "alone": alone, "options": plain, "blobs": blobs}
        return bytes(cloudpickle.dumps(said))

    def _changed_options(self) -> Iterator[tuple[str, Any]]:
        for name, value in vars(self._config.option).items():
            before = self._parsed.get(name, self)
            same = before == value if _is_plain(before) and _is_plain(value) else before is value
            if name not in OURS and not same:
                yield name, value


def _is_plain(value: Any) -> bool:
    if value is None or type(value) in (bool, int, float, str, bytes):
        return True
    if type(value) in (list, tuple):
        return all(_is_plain(item) for item in value)
    return type(value) is dict and all(_is_plain(part) for pair in value.items() for part in pair)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
