"""The world in which the blocks of a page run: a clean environment, and stand-ins for machines.

The ``ssh`` is a script that runs the far command on this machine, without this session's variables
and with two pretend GPUs, as on a host where nothing else is known. Of its hosts ``gpubox`` works,
``barebox`` lacks the package, ``oldbox`` holds other versions, and no other can be resolved.
The cards of this machine are those of a stand-in for NVIDIA's library: none, or as many as a block
wants. Knows processes and files, and of the wire only a greeting of wrong versions.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import cardfile
from pytest_remotegpu.protocol.hello import PROTOCOL

__all__ = ["variables"]

SSH: Final = """\
#!/bin/sh
while [ "$1" != -- ]; do shift; done
host=$2
shift 2
clean="env -i PATH=$PATH HOME=$HOME PYTEST_REMOTEGPU_PRETEND_GPUS=2"
cd /
case $host in
  gpubox) exec $clean sh -c "$*" ;;
  barebox) exec $clean python3 -S -m pytest_remotegpu.worker ;;
  oldbox) exec $clean python3 "$(dirname "$0")/oldbox.py" ;;
  *) echo "ssh: Could not resolve hostname $host: Name or service not known" >&2; exit 255 ;;
esac
"""

OLDBOX: Final = """\
import json, sys
hello = json.dumps({"protocol": PROTOCOL, "package": "0.1.0", "python": "3.10", "pytest": "8.2.0",
                    "executable": "/usr/bin/python3"}).encode()
sys.stdout.buffer.write(len(hello).to_bytes(4, "big") + hello)
sys.stdout.buffer.flush()
sys.stdin.buffer.read()
"""

DOCKER: Final = """\
#!/bin/sh
[ "$1 $2 $3" = "exec -i box" ] || exit 125
shift 3
cd / && exec env -i PATH="$PATH" HOME="$HOME" PYTEST_REMOTEGPU_PRETEND_GPUS=2 "$@"
"""


def variables(folder: Path, python: str, cards: int = 0) -> dict[str, str]:
    """Give the environment for commands; makes the scripts in ``folder`` where they are not there.

    :param python: the interpreter whose folder holds ``python`` and ``pytest``.
    :param cards: how many this host is to show.
    """
    programs, home = folder / "bin", folder / "home"
    if not programs.exists():
        programs.mkdir()
        home.mkdir()
        oldbox = OLDBOX.replace("PROTOCOL", str(PROTOCOL))
        for name, text in (("ssh", SSH), ("docker", DOCKER), ("oldbox.py", oldbox)):
            (programs / name).write_text(text, encoding="utf-8")
            (programs / name).chmod(0o755)
    path = os.pathsep.join((str(programs), str(Path(python).parent), os.environ["PATH"]))
    runtime = os.environ["XDG_RUNTIME_DIR"]
    temporary = Path(runtime, "temporary")
    temporary.mkdir(exist_ok=True)
    hidden = {} if cards else {"CUDA_VISIBLE_DEVICES": ""}
    return (
        _cards(folder / "cards.json", cards)
        | hidden
        | {
            "PATH": path,
            "HOME": str(home),
            "COLUMNS": "80",
            "LANG": "C.UTF-8",
            "XDG_RUNTIME_DIR": runtime,  # the tests' own, with its warm processes
            "TMPDIR": str(temporary),  # where nobody else leaves anything
            "PYTHONUNBUFFERED": "1",  # so that both streams mix as on a terminal
        }
    )


def _cards(path: Path, number: int) -> dict[str, str]:
    """Let a file have cards, which no other test of this machine has leased."""
    names = range(os.getpid() * 10, os.getpid() * 10 + number)  # no more than ten
    cardfile.write_cards(path, [cardfile.fake_card(name) for name in names])
    return cardfile.environment(path)
