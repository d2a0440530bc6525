"""Warm zygotes: which one fits a session, which one is out of date, which one has to be started.

A zygote fits where it was started with the same variables as far as it read any, has imported
nothing of the session's project, and where no file that it imported has changed. The first session
gets one that has imported pytest only; one that has imported large libraries too is made ready once
nobody waits for anything. Knows zygotes; knows no session's order and no channel.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.worker.process import PREFIX, REPLY, TWIN
from pytest_remotegpu.worker.start import spawn_zygote
from pytest_remotegpu.worker.zygote import is_plain, stat_of

__all__ = ["Pool", "Wish"]

MOST: Final = 4
"""Zygotes that are kept; the one that was not needed for longest goes first."""
AT_START: Final = re.compile(
    r"PYTHON|LD_|DYLD_|OMP_|GOMP_|KMP_|MKL_|OPENBLAS_|BLIS_|NUMEXPR_|TORCH|PYTORCH_|CUBLAS_|CUDNN_"
    r"|NCCL_|NVIDIA_|TRITON_|CUDA_(?!VISIBLE_DEVICES$|DEVICE_ORDER$)|JAX_|XLA_|TF_|NUMBA_|CUPY_"
    r"|ONEDNN_|DNNL_|KINETO_|GLOO_|UCX_|TBB_|INTEL_|ONEAPI_|GRPC_|HSA_|HIP_|ROCM_"
    r"|LC_|LANG|TZ$|MALLOC_|GLIBC_|COVERAGE_|COV_CORE_|PYTEST_DISABLE_PLUGIN_AUTOLOAD$|PATH$"
)
"""Variables that the interpreter or a library reads when it starts, behind Python's back."""
READ_ANEW: Final = re.compile(
    r"COLUMNS$|LINES$|TERM$|NO_COLOR$|FORCE_COLOR$|PY_COLORS$|CI$|BUILD_NUMBER$|PWD$|OLDPWD$|SHLVL$"
    r"|_$|PYTEST_(?!DISABLE_PLUGIN_AUTOLOAD$)|REMOTEGPU_WORKER$|CUDA_VISIBLE_DEVICES$"
)
"""Variables that a runner's own session reads again, whatever was read before the fork."""


@dataclass(frozen=True)
class Wish:
    """What a session wants of a zygote.

    :ivar environ: its variables. :ivar root: its project's folder.
    :ivar preload: modules to import ahead.
    """

    environ: Mapping[str, str]
    root: str
    preload: tuple[str, ...]


@dataclass
class Warm:
    """One zygote.

    :ivar folder: its working directory. :ivar without: plugins that it has left alone.
    :ivar inventory: what it has imported and read, once it has said so.
    """

    process: subprocess.Popen[bytes]
    control: socket.socket
    folder: str
    environ: Mapping[str, str]
    preload: tuple[str, ...]
    without: tuple[str, ...]
    bare: bool
    inventory: dict[str, Any] = field(default_factory=dict)
    used: float = field(default_factory=time.monotonic)
    buffer: bytes = b""

    def fits(self, wish: Wish) -> bool:
        """Say whether a runner for this session may be forked from it."""
        same = self.preload in ((), wish.preload) and self._reads_alike(wish.environ)
        return same and not self.foreign(wish.root)

    def _reads_alike(self, environ: Mapping[str, str]) -> bool:
        names = set(self.environ) | set(environ)
        if self.inventory:
            names = {name for name in names if AT_START.match(name)} | set(self.inventory["reads"])
        return all(
            self.environ.get(name) == environ.get(name)
            for name in names
            if not READ_ANEW.match(name)
        )

    def is_pure(self) -> bool:
        """Say whether it is known to hold nothing that may be in no runner."""
        return bool(self.inventory) and not self.inventory["impure"]

    def foreign(self, root: str) -> list[str]:
        """List the files in ``root`` that it has imported, which a runner must import anew."""
        return [file for file in self.inventory.get("modules", ()) if self._is_of(file, root)]

    def _is_of(self, file: str, root: str) -> bool:
        if not root or (is_plain(file) and not file.startswith(root)):
            return False  # as nearly all of thousands
        name = self.inventory["modules"][file]
        inside = bool(root) and Path(file).is_relative_to(root)
        installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
        return inside and not installed and name.partition(".")[0] != "pytest_remotegpu"

    def culprits(self, root: str) -> tuple[str, ...]:
        """Name the plugins that lie in ``root``."""
        plugins = self.inventory.get("plugins", {})
        return tuple(sorted(name for name, file in plugins.items() if self._is_of(file, root)))

    def is_gone(self) -> bool:
        """Say whether it has ended, or should."""
        return self.process.poll() is not None or self.is_stale()

    def is_stale(self) -> bool:
        """Say whether anything that it has imported is another one by now."""
        files = self.inventory.get("files", {})
        return any(stat_of(path) != before for path, before in files.items())

    def read(self) -> bool:
        """Take in what it says; say whether it lives."""
        try:
            chunk = self.control.recv(2**20)
        except OSError:
            chunk = b""
        self.buffer += chunk
        while len(self.buffer) >= REPLY.size:
            kind, length, _, _ = REPLY.unpack(self.buffer[: REPLY.size])
            end = REPLY.size + (length if kind == b"M" else 0)
            if len(self.buffer) < end:
                break
            if kind == b"M":
                self.inventory = json.loads(self.buffer[REPLY.size : end])
            self.buffer = self.buffer[end:]
        return bool(chunk)

    def about(self) -> str:
        """Describe it in a few words."""
        state = "warm" if self.inventory else "starting"
        more = f", without {', '.join(self.without)}" if self.without else ""
        return f"{state}, {len(self.inventory.get('modules', ()))} modules imported{more}"


class Pool:
    """The zygotes of one agent.

    :param came: called with each zygote that was started. :param goes: with each before it is let
        go, while its socket is open.
    """

    def __init__(self, came: Callable[[Warm], None], goes: Callable[[Warm], None]) -> None:
        self.zygotes: list[Warm] = []
        self._came, self._goes = came, goes
        self._cold: Wish | None = None
        self._leaving: dict[int, Warm] = {}

    def find(self, wish: Wish) -> Warm:
        """Give a zygote that fits; start one where there is none.

        :raises OSError: where none can be started.
        """
        while (found := self._fitting(wish)) is not None and found.is_gone():
            self.drop(found)
        self._cold = None if found is not None and found.preload else wish
        found = found or self._start(wish, ())
        found.used = time.monotonic()
        return found

    def _fitting(self, wish: Wish) -> Warm | None:
        """Give one that fits, the best first; whether it still lives and is true, nobody knows."""
        fitting = [zygote for zygote in self.zygotes if zygote.fits(wish)]
        ready = [zygote for zygote in fitting if zygote.preload and zygote.inventory]
        plain = [zygote for zygote in fitting if not zygote.preload]
        return next(iter(ready or plain), None)

    def has(self, wish: Wish) -> bool:
        """Say whether one is ready that has imported all that a session would like."""
        return any(z.preload and z.inventory and z.fits(wish) for z in self.zygotes)

    @property
    def is_cold(self) -> bool:
        """Whether the last session had to do without what it would have liked imported."""
        return self._cold is not None

    def warm_up(self) -> None:
        """Start a zygote that imports what the last session would have liked, if it had none such.

        :raises OSError: where it can't be started.
        """
        wish, self._cold = self._cold, None
        if wish is not None and not any(z.fits(wish) and z.preload for z in self.zygotes):
            self._start(wish, wish.preload)

    def settle(self) -> None:
        """Let zygotes go in whose place there is one that has imported more; both are ready."""
        for warm in [z for z in self.zygotes if z.preload and z.inventory]:
            wish = Wish(warm.environ, "", warm.preload)
            for plain in [z for z in self.zygotes if not z.preload and z.inventory]:
                if plain.fits(wish):
                    self.drop(plain)

    def _start(self, wish: Wish, preload: tuple[str, ...]) -> Warm:
        """Start a zygote without what made others unfit."""
        others = [zygote for zygote in self.zygotes if zygote.foreign(wish.root)]
        without = tuple(sorted({name for z in others for name in z.culprits(wish.root)}))
        bare = any(zygote.without and zygote.without == without for zygote in others)
        while len(self.zygotes) >= MOST:
            self.drop(min(self.zygotes, key=lambda zygote: zygote.used))
        control, child = socket.socketpair()
        folder = _make_folder()
        options = ["--warm", f"--preload={','.join(preload)}"]
        options += [f"--without={','.join(without)}"] if without else []
        options += ["--bare"] if bare else []
        process = spawn_zygote(child, folder, *options, environ=wish.environ)
        control.setblocking(True)
        zygote = Warm(process, control, folder, wish.environ, preload, without, bare)
        self.zygotes.append(zygote)
        self._came(zygote)
        return zygote

    def twin(self, zygote: Warm) -> socket.socket:
        """Have a process forked from a zygote, for one worker alone.

        :return: this end of the socket to it.
        """
        near, far = socket.socketpair()
        with far:
            socket.send_fds(zygote.control, [TWIN], [far.fileno()])
        return near

    def drop(self, zygote: Warm) -> None:
        """Let a zygote go, once it has done what it was asked for.

        Those that were forked from it stay for as long as they are needed. It takes its folder away
        itself, where it still can.
        """
        if zygote not in self.zygotes:
            return
        self.zygotes.remove(zygote)
        self._goes(zygote)
        zygote.control.close()
        if zygote.process.poll() is None:
            self._leaving[zygote.process.pid] = zygote
        else:
            shutil.rmtree(zygote.folder, ignore_errors=True)

    def bury(self, pid: int, code: int) -> None:
        """Take note that a child has ended, by its exit code as :mod:`subprocess` has it."""
        for zygote in [z for z in self.zygotes if z.process.pid == pid]:
            zygote.process.returncode = code
            self.drop(zygote)
        gone = self._leaving.pop(pid, None)
        if gone is not None:
            gone.process.returncode = code
            shutil.rmtree(gone.folder, ignore_errors=True)

    def tidy(self) -> None:
        """Take away the folders of those that were let go, now that all are ended."""
        for zygote in self._leaving.values():
            shutil.rmtree(zygote.folder, ignore_errors=True)

    @property
    def leaving(self) -> list[int]:
        """The processes of zygotes that were let go and have not ended yet."""
        return list(self._leaving)

    def processes(self) -> list[int]:
        """List the processes of zygotes, those included that are about to end."""
        return [*(zygote.process.pid for zygote in self.zygotes), *self._leaving]


def _make_folder() -> str:
    """Make an empty folder; where the one for temporary files has gone, in another one."""
    prefix = f"{PREFIX}{os.getpid()}-"
    with contextlib.suppress(FileNotFoundError):
        return tempfile.mkdtemp(prefix=prefix)
    tempfile.tempdir = None
    return tempfile.mkdtemp(prefix=prefix)
