"""No pickle that a container sends is opened, whatever it claims to be.

In a process of its own: what is replaced in the SDK stays replaced.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("modal")

PROGRAM = """
import io, os, pickle, sys, cloudpickle
from pytest_remotegpu.backends.modal import sdk
sdk.harden()
import modal
from modal import _serialization
from modal._utils import function_utils
from modal_proto import api_pb2

class Evil:
    def __reduce__(self):
        return os.system, ("echo owned",)

class EvilError(Exception):
    def __reduce__(self):
        return os.system, ("echo owned",)

def refused(work):
    try:
        found = work()
    except modal.exception.DeserializationError as error:
        print("refused", str(error)[:60])
    else:
        print("OPENED", found)

bad = [pickle.dumps(Evil()), pickle.dumps(EvilError()), pickle.dumps(SystemExit(0)), b"junk",
       pickle.dumps({"a": 1}), pickle.dumps(KeyboardInterrupt()), cloudpickle.dumps(lambda: 1)]
for data in bad:
    for module in (_serialization, function_utils):
        refused(lambda: module.deserialize(data, None))
        refused(lambda: module.deserialize_data_format(data, api_pb2.DATA_FORMAT_PICKLE, None))
refused(lambda: _serialization.deserialize_data_format(b"", api_pb2.DATA_FORMAT_ASGI, None))
kept = function_utils.deserialize(pickle.dumps(ValueError("x", 1)), None)
assert type(kept) is ValueError and kept.args == ("x", 1)
cbor = _serialization.serialize_data_format(b"plain", api_pb2.DATA_FORMAT_CBOR)
assert function_utils.deserialize_data_format(cbor, api_pb2.DATA_FORMAT_CBOR, None) == b"plain"
assert function_utils.get_preferred_payload_format() == api_pb2.DATA_FORMAT_CBOR
print("done")
"""


def test_pickles_of_containers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "owned" not in done.stdout
    assert lines[-1] == "done"
    assert len(lines) == 2 * 2 * 7 + 2
    assert all(line.startswith("refused") for line in lines[:-1]), done.stdout


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "import importlib.metadata as m; m.version = lambda _: '1.5.4'",
            "modal 1.5.4 is installed",
        ),
        (
            "import importlib.metadata as m; m.version = lambda _: '2.0.0'",
            "pip install 'modal>=1.6,<1.7'",
        ),
        (
            "from modal._utils import function_utils; del function_utils.deserialize",
            "can't be kept from opening what a container sends",
        ),
        (
            "from modal import _functions; del _functions._Invocation.create",
            "does not tell the id of a call (_Invocation)",
        ),
        (
            "from modal import _functions; del _functions._InputPlaneInvocation.run_generator",
            "does not tell the id of a call (_InputPlaneInvocation)",
        ),
    ],
)
def test_an_sdk_that_can_not_be_hardened(change: str, words: str) -> None:
    program = f"from pytest_remotegpu.backends.modal import sdk\n{change}\nsdk.harden()\n"
    program += "sdk.note_calls(print, print)\n"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "UsageError" in done.stderr
    assert words in done.stderr


def test_a_console_that_nobody_reads() -> None:
    """Rich ends its thread by that, which is the SDK's: it could not end an app any more."""
    program = """if True:
        import os, sys
        from rich.console import Console
        from pytest_remotegpu.backends.modal import sdk

        sdk.outlive_readers()
        read, write = os.pipe()
        os.close(read)
        console = Console(file=os.fdopen(write, "w", buffering=1))
        for _ in range(2):
            console.print("a line of a container's")
        print("alive")
        sys.stdout.flush()
        os._exit(0)
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
