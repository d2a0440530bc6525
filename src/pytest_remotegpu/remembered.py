"""What the far side collected last, for a look that rents nothing: shown only while it still holds.

A file's trees are kept with all that they were made of: the project's Python files that had been
read by then, all its other files, the names of all, the far environment, the GPUs, the options.
Where one differs, nothing is shown. Kept in pytest's cache, where nothing is trusted. Knows trees
and snapshots as values; knows no worker, and no node of pytest's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any, Final

import msgspec
import pytest

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import nodes
from pytest_remotegpu.protocol.hello import PROTOCOL
from pytest_remotegpu.snapshot import Entry, Snapshot

__all__ = ["Project", "Remembered", "asked_by"]

MOST: Final = 64 * 2**20
"""Bytes that all of it may take; then what was not collected for longest goes."""
UNHEARD: Final = """
    basetemp cacheclear cacheshow capture code_highlight collectonly color cov_append
    cov_branch cov_config cov_context cov_fail_under cov_precision cov_report cov_source debug
    deselect dist disable_warnings distload durations durations_min failedfirst file_or_dir
    fold_skipped force_short_summary fulltrace help ignore ignore_glob junitprefix
    keepduplicates keyword last_failed_no_failures lf loadscopereorder log_auto_indent
    log_cli_date_format log_cli_format log_cli_level log_date_format log_file
    log_file_date_format log_file_format log_file_level log_file_mode log_format log_level
    looponfail markers markexpr max_warnings maxfail maxprocesses maxschedchunk
    maxworkerrestart newfirst no_cov no_cov_on_fail no_header no_summary numprocesses pastebin
    px quiet reportchars rootdir runxfail session_timeout setuponly setupplan setupshow
    show_fixtures_per_test showcapture showfixtures showlocals stepwise stepwise_reset
    stepwise_skip strict_markers tbstyle testrunuid timeout timeout_disable_debugger_detection
    timeout_method trace traceconfig tx usepdb usepdb_cls verbose version xfail_tb xmlpath
"""
"""Options that choose among tests, measure or show them: a file's tree does not depend on them."""


SHOWING: Final = {"COLUMNS", "LINES", "PYTEST_ADDOPTS", "PYTEST_THEME", "PYTEST_THEME_MODE"}
"""Variables of the same kind; the options of one of them are among all others."""


class _Kept(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What stands in one file of the cache.

    :ivar asked: the digest of all that is no file. :ivar needs: the Python files by name, with
        their states. :ivar rest: the digest of all other files. :ivar at: when, as ``time.time``.
    """

    asked: str
    path: str
    needs: dict[str, str]
    rest: str
    trees: list[bytes]
    at: float


COMPARABLE: Final = (str, bytes, int, float, bool, Decimal)
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Kept)


def asked_by(
    config: pytest.Config,
    backend: str,
    environment: str,
    ours: Collection[str],
    variables: Mapping[str, str],
) -> str:
    """Give the digest of what a session asks of its far side, apart from the project's files.

    :param backend: its name. :param environment: names the far environment.
    :param ours: options and plugins that a far session never hears of.
    :param variables: of the environment that it gets.
    :return: nothing where an option's value can't be compared with that of another session.
    """
    unheard = {*UNHEARD.split(), *ours}
    options = {name: value for name, value in vars(config.option).items() if name not in unheard}
    options["plugins"] = [name for name in options.get("plugins") or () if name not in ours]
    if not all(map(_is_comparable, options.values())):
        return ""
    parts = [f"{name}={value!r}" for name, value in sorted(options.items())]
    if config.inipath is not None:  # which may lie outside of what is sent
        content = hashlib.sha256(config.inipath.read_bytes()).hexdigest()
        parts.append(f"{config.inipath}={content}")
    parts += [f"{name}={text}" for name, text in sorted(variables.items()) if name not in SHOWING]
    parts.append(os.path.relpath(config.invocation_params.dir, config.rootpath))
    versions = [str(PROTOCOL), pytest.__version__, sys.version]
    return _digest([*versions, backend, environment, *parts])


def _is_comparable(value: Any) -> bool:
    """Say whether two values are the same where their texts are."""
    if isinstance(value, dict):
        return all(map(_is_comparable, (*value.keys(), *value.values())))
    if isinstance(value, list | tuple):
        return all(map(_is_comparable, value))
    return value is None or type(value) in COMPARABLE or isinstance(value, PurePath)


class Project:
    """The state of a project's files.

    :param taken: those of its folder, and of installs elsewhere.
    """

    def __init__(self, taken: Snapshot, further: Iterable[Snapshot]) -> None:
        states = {each.path: _state(each) for each in taken.entries}
        self.python = {path: state for path, state in states.items() if path.endswith(".py")}
        others = [f"{path}\0{state}" for path, state in states.items() if path not in self.python]
        self.rest = _digest([*others, *self.python, *(each.manifest.digest for each in further)])


def _state(entry: Entry) -> str:
    return f"{entry.digest} {entry.mode:o} {entry.link or ''}"


class Remembered:
    """The trees that one session finds and keeps.

    :param folder: for them; ``None`` to keep none. :param asked: as :func:`asked_by` gives it.
    """

    def __init__(self, root: Path, folder: Path | None, asked: str) -> None:
        self._root = root
        self._folder = folder
        self._asked = asked
        self._new: dict[str, tuple[Shape, dict[int, bytes], list[str]]] = {}

    def _place(self, path: str, shape: Shape) -> Path:
        assert self._folder is not None
        return self._folder / f"{_digest([path, repr(shape), self._asked])[:32]}.tree"

    # what was collected

    def note(
        self, path: str, number: int, shape: Shape, data: bytes, sources: Iterable[str]
    ) -> None:
        """Take note of a tree.

        :param path: of the file. :param number: of its collector. :param data: the tree as it came.
        :param sources: what had been read by then.
        """
        _, trees, needs = self._new.setdefault(path, (shape, {}, []))
        trees[number] = data
        needs[:] = dict.fromkeys([*needs, *sources])

    def forget(self, path: str) -> None:
        """Take a note back."""
        self._new.pop(path, None)

    def keep(self, project: Project) -> None:
        """Write down what was noted; what can't be written is forgotten.

        :param project: as it was sent.
        """
        if self._folder is None:
            return
        for path, (shape, trees, sources) in self._new.items():
            if not all(name in project.python for name in (path, *sources)):
                continue  # it was made of more than what was sent
            whole = sorted(trees) == list(range(len(trees)))
            failed = any(map(_failed, trees.values()))
            needs = self._needs(path, sources, self._new)
            if whole and not failed and path in needs:
                kept = _Kept(
                    self._asked,
                    path,
                    {name: project.python[name] for name in needs},
                    project.rest,
                    [trees[number] for number in sorted(trees)],
                    time.time(),
                )
                with contextlib.suppress(OSError, UnicodeError):  # no text is a name of odd bytes
                    _write(self._place(path, shape), _ENCODER.encode(kept))
        self._new.clear()
        _bound(self._folder)

    def _needs(self, path: str, sources: Iterable[str], tests: Collection[str]) -> list[str]:
        """Give what a file needs of what was read: of other files of tests, those it may name."""
        own = [name for name in sources if name == path or name not in tests]
        text = "\n".join(map(self._text, own))
        words = set(re.findall(r"\w+", text))
        return [
            name
            for name in sources
            if name in own or Path(name).stem in words or Path(name).stem == "__init__"
        ]

    def _text(self, name: str) -> str:
        try:
            return (self._root / name).read_text("utf-8", "replace")
        except OSError:
            return ""

    # what is shown

    def find(self, path: str, shape: Shape, project: Project) -> tuple[list[nodes.Tree], float]:
        """Give a file's trees, and when they were collected; none where they may not hold.

        :param project: as it is now.
        """
        if self._folder is None:
            return [], 0.0
        try:
            kept = _DECODER.decode(self._place(path, shape).read_bytes())
            trees = [nodes.decode(data) for data in kept.trees]
        except (OSError, msgspec.MsgspecError, ProtocolError):
            return [], 0.0
        same = (kept.asked, kept.path, kept.rest) == (self._asked, path, project.rest)
        if not same or not _holds(kept.needs, project.python):
            return [], 0.0
        return trees, kept.at


def _holds(needs: Mapping[str, str], now: Mapping[str, str]) -> bool:
    return all(now.get(name) == state for name, state in needs.items())


def _failed(data: bytes) -> bool:
    return not data or any(node.outcome is not None for node in nodes.decode(data).nodes)


def _digest(parts: Iterable[str]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape")
        whole.update(b"%d:" % len(data) + data)
    return whole.hexdigest()


def _write(path: Path, data: bytes) -> None:
    """Write a file in one piece, for whoever reads it meanwhile."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _bound(folder: Path) -> None:
    """Remove what is too much."""
    with contextlib.suppress(OSError):
        found = sorted(
            ((status.st_mtime, status.st_size, path) for path, status in _files(folder)),
            reverse=True,
        )
        total = 0
        for _, size, path in found:
            total += size
            if total > MOST:
                path.unlink(missing_ok=True)


def _files(folder: Path) -> Iterable[tuple[Path, os.stat_result]]:
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            yield path, path.stat()
