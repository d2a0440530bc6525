"""Which commit a project is at, what was changed since, and the files of another commit.

Asks git; a project that git knows nothing of has no revision. Knows no rule about files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

from pytest_remotegpu.errors import UsageError
from pytest_remotegpu.snapshot import git

__all__ = ["Asked", "check_out", "resolve"]

_STATUS: Final = (
    *("-c", "core.fsmonitor=false", "status", "--porcelain=v2", "-z", "--branch"),
    *("--untracked-files=all", "--no-renames", "--", "."),
)
_SHORT: Final = 12
_WHOLE: Final = 16 * 2**20
"""Bytes up to which a changed file is read; of larger ones, size and time of change count."""
_SUBMODULE: Final = "160000"
_NO_HOOKS: Final = ("-c", f"core.hooksPath={os.devnull}")


class Asked:
    """The question at which commit a folder is; git works on it meanwhile."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._question: git.Question | None = None
        with contextlib.suppress(git.NoGitError):
            self._question = git.Question(root, *_STATUS)

    def answer(self, content: str = "") -> str:
        """Give the commit; with ``-dirty-`` and a digest of what differs, where something does.

        :param content: a digest of all files, where that is known; else changed ones are read.
        :return: empty where there is none
        """
        question, self._question = self._question, None
        if question is None:
            return ""
        try:
            said = question.answer()
        except (git.NoGitError, UsageError):
            return ""
        records = [record for record in said.split(b"\0") if record]
        heads = [os.fsdecode(record) for record in records if record.startswith(b"# branch.oid ")]
        commit = heads[0].rpartition(" ")[2] if heads else ""
        changes = [record for record in records if not record.startswith(b"#")]
        commit = "uncommitted" if commit == "(initial)" else commit
        if not changes or not commit:
            return commit
        digest = content or self._digest(changes)
        return f"{commit}-dirty-{digest[:_SHORT]}"

    def drop(self) -> None:
        """Do without the answer."""
        if self._question is not None:
            self._question.drop()
            self._question = None

    def _digest(self, changes: list[bytes]) -> str:
        digest = hashlib.sha256()
        top = self._top()
        for record in changes:
            fields = record.split(
                b" ", 1 if record[:1] == b"?" else 10 if record[:1] == b"u" else 8
            )
            digest.update(record + b"\0" + _content_of(top / os.fsdecode(fields[-1])))
        return digest.hexdigest()

    def _top(self) -> Path:
        """Give the folder that git's paths are relative to."""
        try:
            answer = git.Question(self._root, "rev-parse", "--show-toplevel").answer()
        except (git.NoGitError, UsageError):
            return self._root
        return Path(os.fsdecode(answer.removesuffix(b"\n")))


def _content_of(path: Path) -> bytes:
    try:
        if path.is_symlink():
            return os.fsencode(os.readlink(path))  # noqa: PTH115 -- Path alters the text
        status = path.stat()
        if not path.is_file() or status.st_size > _WHOLE:
            return f"{status.st_size} {status.st_mtime_ns}".encode()
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return b""


def resolve(root: Path, ref: str) -> str:
    """Give the commit that a name stands for.

    :raises UsageError: git knows no such commit, or nothing of the folder
    """
    if not ref or ref.startswith("-"):
        raise UsageError(f"--remote-rev={ref!r} names no commit, such as HEAD~1, main or a digest")
    try:
        answer = git.Question(
            root, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}"
        ).answer()
    except git.NoGitError as error:
        raise UsageError(f"--remote-rev={ref!r} needs a git checkout: {error}") from None
    except UsageError:
        raise UsageError(f"--remote-rev={ref!r} names no commit of {str(root)!r}") from None
    return answer.decode("ascii").strip()


def check_out(root: Path, commit: str, to: Path) -> tuple[Path, list[str]]:
    """Write the files of a commit into an empty folder, those of its submodules included.

    The checkout itself, its index and its branch stay as they are; no hook is run.

    :return: the folder that corresponds to ``root``, and the submodules whose files are not there
    :raises UsageError: git can't do that
    """
    try:
        prefix = git.Question(root, "rev-parse", "--show-prefix").answer()
        inner = os.fsdecode(prefix.removesuffix(b"\n"))
        absent: list[str] = []
        _write(root, commit, to, inner, absent)
    except git.NoGitError as error:
        raise UsageError(f"--remote-rev needs a git checkout: {error}") from None
    here = to / inner
    here.mkdir(parents=True, exist_ok=True)
    return here, absent


def _write(root: Path, commit: str, to: Path, inner: str, absent: list[str]) -> None:
    listed = git.Question(root, "ls-tree", "-r", "-z", commit).answer()
    entries = [os.fsdecode(record) for record in listed.split(b"\0") if record]
    modules = [entry for entry in entries if entry.startswith(_SUBMODULE)]
    if len(modules) < len(entries):
        with tempfile.TemporaryDirectory(prefix="remotegpu-index-") as folder:
            git.Question(
                root, *_NO_HOOKS, f"--work-tree={to}", "checkout", "--quiet", "--force", commit,
                "--", f":(top,literal){inner}" if inner else ":/",
                variables={"GIT_INDEX_FILE": str(Path(folder, "index"))},
            ).answer()  # fmt: skip
    for entry in modules:
        head, _, path = entry.partition("\t")
        there = to / inner / path
        there.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(root / path / ".git"):
            absent.append(path)
            continue
        try:
            _write(root / path, head.split()[2], there, "", absent)
        except (UsageError, git.NoGitError):
            absent.append(path)
