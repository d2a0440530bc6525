"""The small project that the conformance kit has a worker run, and the order that asks for it.

Builds orders as a session would; knows no backend and opens no channel.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import cloudpickle

from pytest_remotegpu.manifest import Line, Manifest
from pytest_remotegpu.protocol import orders

__all__ = ["BALLAST", "BIG", "NOISE", "SESSION", "VARIABLE", "Project", "clean"]

VARIABLE: Final = "KIT_VALUE"
BIG: Final = "KIT_BIG"
"""How many bytes ``test_big`` prints."""
NOISE: Final = b"\x00\x00\x00\x08garbage! \xff\xfe\n"
"""What ``test_noise`` writes: bytes that would be a frame if they got among the frames."""
BALLAST: Final = 3 * 2**20
"""Bytes of a file that lies in the project, more than some queues take in one piece."""

_TESTS: Final = f'''
import os, subprocess, sys, time
import pytest

def test_environment():
    print("value:", os.environ["{VARIABLE}"])

def test_noise():
    for _ in range(100):
        os.write(1, {NOISE!r})
    print("on the first stdout", file=sys.__stdout__, flush=True)
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)

def test_big():
    count = int(os.environ["{BIG}"])
    print("<" + "0123456789abcdef" * (count // 16) + ">")

@pytest.mark.parametrize("value", [pytest.param(1, id="i" * 276)])
def test_long(value):
    assert value == 1

def test_fails():
    assert [1, 2] == [1, 3]

def test_crash():
    print("last words", flush=True)
    os._exit(7)

def test_after_the_crash():
    pass

def test_ballast():
    assert os.path.getsize("ballast.bin") == {BALLAST}

def test_kills_the_worker():
    os.kill(family()[-1], 9)
    time.sleep(600)

def test_sleeps():
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = subprocess.Popen(sleep, start_new_session=True)
    print("pids", child.pid, *family(), flush=True)
    time.sleep(600)

def family():
    """This process and its ancestors up to the worker's first process."""
    found = [os.getpid(), os.getppid()]
    if sys.platform == "linux":
        while b"pytest_remotegpu.worker" in command(above := parent(found[-1])):
            found.append(above)
    return found

def parent(pid):
    with open(f"/proc/{{pid}}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])

def command(pid):
    with open(f"/proc/{{pid}}/cmdline", "rb") as file:
        return file.read()
'''

_FILES: Final[dict[str, bytes]] = {
    "pytest.ini": b"[pytest]\n",
    "test_kit.py": _TESTS.encode(),
    "test_λ.py": "def test_日本():\n    print('ąß🂡')\n".encode(),
    "ballast.bin": bytes(range(256)) * (BALLAST // 256),
}

SESSION: Final = (
    "test_kit.py::test_environment",
    "test_kit.py::test_noise",
    "test_kit.py::test_big",
    f"test_kit.py::test_long[{'i' * 276}]",
    "test_kit.py::test_fails",
    "test_kit.py::test_crash",
    "test_kit.py::test_after_the_crash",
    "test_λ.py::test_日本",
)
"""The tests of an ordinary session, in order."""


@dataclass(frozen=True)
class Project:
    """The project's files on this host.

    :ivar root: their folder, which is made and filled by :meth:`write`.
    :ivar mark: the content of a file that no far side has seen before.
    """

    root: Path
    mark: bytes = b"marked"

    @classmethod
    def write(cls, root: Path) -> Project:
        """Write the project into a new folder ``root``."""
        root.mkdir(parents=True)
        project = cls(root, secrets.token_bytes(16))
        for name, data in project.files.items():
            Path(root, name).write_bytes(data)
        return project

    @property
    def files(self) -> dict[str, bytes]:
        """Each file's content by its name."""
        return {**_FILES, "mark.bin": self.mark}

    def order(
        self,
        worker: str,
        nonce: str,
        ids: Sequence[str],
        variables: Mapping[str, str],
        *,
        gpus: int,
        ships_tree: bool,
        first: int,
        live: bool,
    ) -> orders.Order:
        """Ask for the tests ``ids``.

        :param variables: the environment of the tests; with a tree, what is added to it.
        :param ships_tree: whether the files travel; else the worker runs in ``root``.
        :param first: how many of the tests make the first stretch.
        :param live: whether output is sent while it is written, instead of with its report.
        """
        return orders.Order(
            worker=worker,
            nonce=nonce,
            gpus=gpus,
            cwd="." if ships_tree else str(self.root),
            root=str(self.root),
            tree=self._tree() if ships_tree else None,
            variables=dict(variables) if ships_tree else {},
            environ=None if ships_tree else dict(variables),
            options=self._options(ids, live=live),
            max_artifact=2**20,
            payload=cloudpickle.dumps({"ids": list(ids), "alone": [], "options": {}, "blobs": {}}),
            run=orders.Run(0, first),
        )

    def _options(self, ids: Iterable[str], *, live: bool) -> orders.Options:
        names = dict.fromkeys(id.partition("::")[0] for id in ids)
        return orders.Options(
            args=["-p", "no:cacheprovider", "--color=no", *(["-s"] if live else [])],
            argv=["pytest"],
            files=[str(Path(self.root, name)) for name in names],
            umask=0o077,
            live=live,
            run="kit",
        )

    def _tree(self) -> orders.Tree:
        whole = Manifest.of(
            Line(name, _digest(data), len(data), 0o644, None) for name, data in self.files.items()
        )
        return orders.Tree(
            digest=whole.digest,
            manifest=zlib.compress(whole.encoded, 1),
            unfolded=len(whole.encoded),
            project=str(self.root),
            name=self.root.name,
        )

    def blobs(self) -> Iterator[orders.Blob]:
        """Yield the content of every file."""
        return (orders.Blob(_digest(data), data) for data in self.files.values())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def clean(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Give the variables of this process, less those by which a pytest session steers itself."""
    return {name: value for name, value in variables.items() if not name.startswith("PYTEST")}
