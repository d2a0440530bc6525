"""The one file that takes what Modal's SDK keeps private: no pickle from a container is opened.

Modal's client unpickles what a container says is a pickle: results, chunks of a stream, exceptions.
A container runs the user's code and whatever that has installed, so that none of it may run code
here. Nor does the client begin a call again by itself, which is ours to decide. What is private is
looked for before it is replaced; where it is not there, nothing starts.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import importlib.metadata
import importlib.util
import io
import pickle
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.errors import UsageError

__all__ = ["TESTED", "harden", "load", "note_calls", "outlive_readers"]

Reads = Callable[[], AsyncGenerator[Any, None]]
"""Begins to read what a call gives, from the first item on."""
TESTED: Final = ((1, 6), (1, 7))
"""The first minor version of the SDK that this was tried with, and the first that it was not."""


class _Exceptions(pickle.Unpickler):
    """Opens pickles of plain values and of Python's own exceptions, and no others."""

    def find_class(self, module: str, name: str) -> Any:
        """Find a class of exceptions that can't end this process.

        :raises pickle.UnpicklingError: for anything else.
        """
        kind = getattr(builtins, name, None) if module == "builtins" else None
        if isinstance(kind, type) and issubclass(kind, Exception):
            return kind
        raise pickle.UnpicklingError(f"a container sent a pickle of {module}.{name}")


PARTS: Final = ("__init__.py", "app.py", "_container_entrypoint.py")
"""Files that tell the SDK from a folder of a project that is called as it is."""


def load() -> Any:
    """Import the SDK, also where the import path leads to another ``modal`` first.

    :raises UsageError: where that other one is all that is found.
    :raises ImportError: where there is none.
    """
    for found in importlib.metadata.distributions(name="modal"):
        home = Path(str(found.locate_file("modal")))
        if all((home / part).is_file() for part in PARTS):
            sys.path.insert(0, str(home.parent))
            break
    modal = _imported()
    if not hasattr(modal, "App"):
        spec = importlib.util.find_spec("modal")
        place = spec and (spec.origin or list(spec.submodule_search_locations or ()))
        raise UsageError(
            f"{place} is taken for Modal's SDK, which is not installed beside it: "
            "python -m pip install 'pytest-remotegpu[modal]'"
        )
    return modal


def _imported() -> Any:
    collects = gc.isenabled()
    gc.disable()  # all of it stays; to look through it again and again takes a tenth of the time
    try:
        import modal  # noqa: PLC0415 -- late: it takes a third of a second
    finally:
        if collects:
            gc.enable()
    return modal


def harden() -> None:
    """Have the SDK of this process send plain data, and open no pickle that a container sends.

    And have it report a lost call at once. On an input plane it would begin one up to eight times,
    without a pause, and goes on to listen to the first attempt only, whatever a later one says.

    :raises UsageError: where this version of the SDK has no such places, or was never tried.
    """
    import modal  # noqa: PLC0415 -- late: it takes a third of a second

    installed = importlib.metadata.version("modal")
    version = tuple(int(part) for part in installed.split(".")[:2])
    if not TESTED[0] <= version < TESTED[1]:
        span = " up to, not including, ".join(".".join(map(str, each)) for each in TESTED)
        raise UsageError(
            f"modal {installed} is installed, and this version of pytest-remotegpu was "
            f"tried with {span}: python -m pip install 'modal>={TESTED[0][0]}.{TESTED[0][1]},"
            f"<{TESTED[1][0]}.{TESTED[1][1]}'"
        )
    try:
        _replace(modal.exception.DeserializationError)
    except (AttributeError, ImportError) as error:
        raise UsageError(
            f"modal {installed} can't be kept from opening what a container sends "
            f"({error}); please report this, and install another version meanwhile: "
            "python -m pip install modal==1.6.4"
        ) from None


def outlive_readers() -> None:
    """Have the SDK go on where nobody reads what it prints any more.

    Else its thread ends with the first line that a container logs then, and no app can be ended.
    """
    with contextlib.suppress(ImportError):
        from rich.console import Console  # noqa: PLC0415 -- late: few sessions show a build

        def on_broken_pipe(self: Console) -> None:
            """Leave out the line."""

        Console.on_broken_pipe = on_broken_pipe  # type: ignore[method-assign]


def note_calls(note: Callable[[str], None], keep: Callable[[Reads], Reads]) -> None:
    """Have the SDK of this process tell which id the service has given to a call, once it has.

    A call that is streamed has no such place, and can't be cancelled without its id. What a
    container says of it comes late, or never, and need not be true.

    :param note: is given the id; an empty one for a call through an input plane, which has none
        that this side could know. Called in a thread of the SDK's.
    :param keep: makes of what reads from a call, from its beginning, what is read in its place.
    :raises UsageError: where this version of the SDK has no such places.
    """
    from modal import _functions  # noqa: PLC0415 -- late: it takes a third of a second

    def noted(create: Callable[..., Any]) -> Any:
        async def noting(*args: Any, **named: Any) -> Any:
            made = await create(*args, **named)
            note(str(getattr(made, "function_call_id", "")))
            made.run_generator = keep(made.run_generator)
            return made

        return staticmethod(noting)

    names = ("_Invocation", "_InputPlaneInvocation")
    lacking = [
        name
        for name in names
        if not hasattr(kind := getattr(_functions, name, None), "create")
        or not hasattr(kind, "run_generator")
    ]
    if lacking:
        raise UsageError(
            f"modal {importlib.metadata.version('modal')} does not tell the id of a call "
            f"({', '.join(lacking)}), without which it can't be cancelled; please report this, and "
            "install another version meanwhile: python -m pip install modal==1.6.4"
        )
    for kind in (getattr(_functions, name) for name in names):
        setattr(kind, "create", noted(kind.create))  # noqa: B010 -- mypy knows it as a method


def _replace(error_type: type[Exception]) -> None:
    # Private, for want of a public way: the SDK opens what a container sends in these functions, by
    # the format that the container names, and has no setting that forbids pickles.
    from modal import _functions, _serialization  # noqa: PLC0415 -- late: see above
    from modal import dict as dicts  # noqa: PLC0415 -- late, as above
    from modal import queue as queues  # noqa: PLC0415 -- late, as above
    from modal._utils import function_utils  # noqa: PLC0415 -- late; private, as said above
    from modal_proto import api_pb2  # noqa: PLC0415 -- late, as above

    def deserialize(data: bytes, client: object) -> Any:  # noqa: ARG001 -- the SDK's signature
        """Open an exception of Python's own; refuse everything else."""
        try:
            found = _Exceptions(io.BytesIO(data)).load()
        except Exception as error:  # noqa: BLE001 -- the border: bytes may do anything
            raise error_type(f"refused: {error}") from None
        if not isinstance(found, Exception):
            raise error_type(f"refused: a container sent a pickle of {type(found).__name__}")
        return found

    plain = _serialization.deserialize_data_format
    allowed = (api_pb2.DATA_FORMAT_CBOR, api_pb2.DATA_FORMAT_GENERATOR_DONE)

    def deserialize_data_format(data: bytes, data_format: int, client: object) -> Any:
        """Open plain data only."""
        if data_format not in allowed:
            name = api_pb2.DataFormat.Name(data_format)
            raise error_type(f"refused: a container sent {name}, which is no plain data")
        return plain(data, data_format, client)

    def get_preferred_payload_format() -> int:
        """Send plain data."""
        return int(api_pb2.DATA_FORMAT_CBOR)

    replaced = {
        "deserialize": deserialize,
        "deserialize_data_format": deserialize_data_format,
        "get_preferred_payload_format": get_preferred_payload_format,
    }
    places: list[tuple[Any, str, Any]] = [
        *(
            (module, name, ours)
            for module in (_serialization, function_utils)
            for name, ours in replaced.items()
        ),
        *((module, "deserialize", deserialize) for module in (dicts, queues)),
        (_functions, "MAX_INTERNAL_FAILURE_COUNT", 1),
    ]
    for module, name, _ in places:
        getattr(module, name)  # there must be such a place
    for module, name, ours in places:
        setattr(module, name, ours)
