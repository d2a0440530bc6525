"""What the containers of these tests run; each test makes the app that it needs of it."""

import contextlib
import importlib.metadata
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def add(first: int, second: int) -> int:
    return first + second


def echo(data: bytes) -> bytes:
    return data


def surroundings() -> dict[str, Any]:
    return {
        "environ": dict(os.environ),
        "cwd": str(Path.cwd()),
        "python": sys.executable,
        "pid": os.getpid(),
        "path": sys.path,
    }


def count(upto: int, pause: float = 0.0) -> Iterator[Any]:
    import modal  # noqa: PLC0415 -- only containers need it here

    yield modal.current_function_call_id()
    print(f"counting to {upto}", flush=True)
    for number in range(upto):
        time.sleep(pause)
        yield f"{os.environ['MODAL_TASK_ID']} {number}"


def big(size: int) -> Iterator[bytes]:
    yield b"x" * size


def fail(text: str) -> None:
    raise ValueError(text)


def die(code: int) -> None:
    os._exit(code)


def nap(seconds: float) -> str:
    time.sleep(seconds)
    return os.environ["MODAL_TASK_ID"]


def stubborn() -> None:
    """Swallow whatever asks it to end."""
    for number in (signal.SIGUSR1, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    print("stubborn now", flush=True)
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(0.05)


def leave_child() -> int:
    """Start a process that wants to outlive its container."""
    pid = os.fork()
    if not pid:
        os.setsid()
        while True:
            time.sleep(60)
    return pid


def volume(write: str) -> list[str]:
    folder = Path("data")
    if write:
        (folder / write).write_text(write)
    return sorted(entry.name for entry in folder.iterdir())


def talk(queue_name: str) -> int:
    """Take numbers from a queue, and send back their doubles, until there is a None."""
    import modal  # noqa: PLC0415 -- only containers need it here

    queue = modal.Queue.from_name(queue_name)
    taken = 0
    while (number := queue.get(timeout=20)) is not None:
        queue.put(number * 2, partition="back")
        taken += 1
    return taken


def packages() -> list[str]:
    """List what is installed here."""
    found = importlib.metadata.distributions()
    return sorted({f"{each.metadata['Name']} {each.version}" for each in found})


def read(path: str) -> str:
    return Path(path).read_text()


def spoken(word: str) -> None:
    """Write a line."""
    print(word, flush=True)
