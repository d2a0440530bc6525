"""`python -m tests.loopback`: serve until Ctrl-C, or as long as a command runs against it.

    python -m tests.loopback -- pytest --remote=modal:T4 -m gpu examples/quickstart

runs that command with the variables that make Modal's client come here, and ends with its status.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from .service import LoopbackModal


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.loopback", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--input-plane", action="store_true", help="call as the input plane does")
    parser.add_argument(
        "--images",
        choices=["interpreter", "venv"],
        default="interpreter",
        help="what an image is: this interpreter, or an environment built from its recipe",
    )
    parser.add_argument("command", nargs="*", help="after `--`: what to run against it")
    return parser.parse_args(argv)


def _run(command: list[str], environ: dict[str, str]) -> int:
    with subprocess.Popen(command, env={**os.environ, **environ}) as process:
        # Ctrl-C is the command's own: it comes to both, and what it does with it decides.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            status = process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
    return 128 - status if status < 0 else status


def _serve(environ: dict[str, str]) -> int:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    for name, value in environ.items():
        print(f"export {name}={shlex.quote(value)}")
    print("# serving until Ctrl-C", flush=True)
    stop.wait()
    return 0


def main(argv: list[str]) -> int:
    """Serve as the command line says, and return the exit status."""
    arguments = _arguments(argv)
    with (
        tempfile.TemporaryDirectory(prefix="loopback-") as folder,
        LoopbackModal(
            Path(folder),
            port=arguments.port,
            input_plane=arguments.input_plane,
            images=arguments.images,
        ) as service,
    ):
        if arguments.command:
            return _run(arguments.command, service.environ)
        return _serve(service.environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
