"""A look at Modal for the doctor: a process with the SDK asks what costs nothing, and tells here.

Starts that process and hears it; knows neither the SDK nor what is asked there.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pytest_remotegpu.backends.base import Finding
from pytest_remotegpu.backends.modal import trouble

__all__ = ["PATIENCE", "PROGRAM", "examine"]

PROGRAM: Final = "pytest_remotegpu.backends.modal.looking"
PATIENCE: Final = 90.0
"""Seconds for all questions; the SDK itself tries each one for a minute."""


def examine(
    python: str,
    order: Mapping[str, Any],
    variables: Mapping[str, str],
    patience: float = PATIENCE,
) -> Iterator[Finding]:
    """Yield what the process finds.

    :param python: the interpreter that has the SDK. :param order: as for a courier.
    :param patience: seconds after which no more answers are waited for.
    """
    process = subprocess.Popen(
        [python, "-P", "-m", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(variables),
        start_new_session=True,
    )
    errors: list[bytes] = []
    assert process.stderr is not None
    listener = threading.Thread(target=_collect, args=(process.stderr, errors), daemon=True)
    listener.start()
    late = threading.Event()

    def give_up() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(patience, give_up)
    timer.start()
    try:
        yield from _hear(process, order)
        code = process.wait()
        listener.join(1.0)
        if late.is_set():
            text = f"Modal does not answer within {patience:g} s"
            yield Finding("modal service", "FAIL", text, trouble.LOOK)
        elif code:
            last = (b"".join(errors).decode("utf-8", "replace").strip().splitlines() or [""])[-1]
            text = f"the look at Modal ended with exit status {code}: {last}"
            yield Finding("modal service", "FAIL", text, "please report this")
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        listener.join(1.0)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _collect(stream: Any, found: list[bytes]) -> None:
    with contextlib.suppress(OSError, ValueError):
        found.extend(stream)


def _hear(process: subprocess.Popen[bytes], order: Mapping[str, Any]) -> Iterator[Finding]:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(OSError):
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.close()
    for line in process.stdout:
        yield Finding(**json.loads(line))
