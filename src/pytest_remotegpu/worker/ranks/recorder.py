"""How a launcher reads the flight recorders of ranks that can do nothing themselves any more.

A rank that has torch serves them on a socket in the worker's folder, from a thread of torch that
needs no interpreter. Knows HTTP as far as that goes, and nothing of what is said.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

__all__ = ["ask", "joined", "load", "serve"]

MODULE: Final = "torch.distributed.elastic.control_plane"
SOCKET: Final = "TORCH_WORKER_SERVER_SOCKET"
HANDLERS: Final = ("fr_trace_json", "dump_nccl_trace_json")
"""What is asked: for gloo's recorder, and for NCCL's."""
PATIENCE: Final = 0.25
"""Seconds in which all ranks must have answered."""
MOST: Final = 8 * 2**20
"""Bytes of one answer."""
_kept: list[Any] = []


def _name(launcher: int, rank: int) -> str:
    return f"recorder-{launcher}-{rank}"


@contextlib.contextmanager
def _opened(folder: str) -> Iterator[str]:
    """Give a short name for a folder: a socket's may have a hundred characters only."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


# in a rank


def load() -> None:
    """Import what serves; ranks that are forked later have it."""
    with contextlib.suppress(Exception):  # a torch without it, or one of its own trouble
        importlib.import_module(MODULE)


def serve(folder: str, rank: int) -> None:
    """Serve the recorders of this process where it has torch's process groups; once.

    :param folder: the worker's. :param rank: of this process.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    if _kept or distributed is None or not distributed.is_available():
        return
    before = os.environ.get(SOCKET)
    # what fails here is the recorder's affair, and no test's
    with contextlib.suppress(Exception), _opened(folder) as short, _silent_stderr():
        os.environ[SOCKET] = f"{short}/{_name(os.getppid(), rank)}"
        # bare: what torch wraps around it takes faulthandler away from pytest
        bare: Any = inspect.unwrap(importlib.import_module(MODULE).worker_main)
        server = contextlib.contextmanager(bare)()
        server.__enter__()
        _kept.append(server)  # for as long as the process lives
    if before is None:
        os.environ.pop(SOCKET, None)
    else:
        os.environ[SOCKET] = before


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """Drop what torch's native code writes meanwhile."""
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


# in the launcher


def ask(folder: str, ranks: Iterable[int]) -> dict[int, dict[str, bytes]]:
    """Ask ranks for what they have recorded.

    :return: by rank and handler what each has answered, as JSON; ranks without an answer miss.
    """
    found: dict[int, dict[str, bytes]] = {}
    with (
        contextlib.suppress(OSError),
        _opened(folder) as short,
        selectors.DefaultSelector() as all_,
    ):
        for rank in ranks:
            for handler in HANDLERS:
                channel = _call(f"{short}/{_name(os.getpid(), rank)}", handler)
                if channel is not None:
                    all_.register(channel, selectors.EVENT_READ, (rank, handler, bytearray()))
        deadline = time.monotonic() + PATIENCE
        while all_.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in all_.select(left):
                rank, handler, said = key.data
                if _read(key.fileobj, said):
                    continue
                all_.unregister(key.fileobj)
                if body := _body(said):
                    found.setdefault(rank, {})[handler] = body
    return found


def joined(answers: Mapping[str, bytes]) -> str:
    """Make one text of the answers of a rank: a JSON object of those that hold anything."""
    full = {name: said.decode("utf-8", "replace") for name, said in answers.items()}
    parts = [f"{json.dumps(name)}: {said}" for name, said in full.items() if '"entries"' in said]
    return f"{{{', '.join(parts)}}}\n"


def _call(path: str, handler: str) -> socket.socket | None:
    channel = socket.socket(socket.AF_UNIX)
    try:
        channel.setblocking(False)
        channel.connect(path)
        channel.sendall(f"POST /handler/{handler} HTTP/1.0\r\nContent-Length: 0\r\n\r\n".encode())
    except OSError:
        channel.close()
        return None
    return channel


def _read(channel: Any, said: bytearray) -> bool:
    """Read on; say whether there may be more."""
    try:
        chunk = channel.recv(2**18)
    except BlockingIOError:
        return True
    except OSError:
        chunk = b""
    said += chunk
    if chunk and len(said) < MOST:
        return True
    channel.close()
    return False


def _body(said: bytes | bytearray) -> bytes:
    head, _, body = bytes(said).partition(b"\r\n\r\n")
    return body if head.split(b" ")[1:2] == [b"200"] and len(said) < MOST else b""
