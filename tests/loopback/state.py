"""What the service knows: apps, functions, images, mounts, calls. Values only, no requests."""

import hashlib
import itertools
import secrets
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from modal_proto import api_pb2

from .wire import Message, Signal


def digest(*parts: bytes | str) -> str:
    """Name content: equal parts, equal name."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()[:22]


@dataclass
class Function:
    """A function of an app, or one bound to options (`base` is then the one it was made from)."""

    id: str
    app_id: str
    data: Message  # FunctionData, with at least one ranked function
    metadata: Message  # FunctionHandleMetadata
    base: "Function | None" = None
    options: Message | None = None
    params: bytes = b""

    @property
    def name(self) -> str:
        """Return the name it has in its app."""
        return str(self.data.function_name)


@dataclass
class Deploy:
    """One `AppPublish`: `changed` is False where the service found nothing new."""

    app_id: str
    name: str
    changed: bool
    at: float
    tags: dict[str, str]


@dataclass
class App:
    """An app; `functions` are those published last."""

    id: str
    name: str
    environment: str
    state: int
    created_at: float = field(default_factory=time.time)
    stopped_at: float = 0.0
    last_seen: float = field(default_factory=time.monotonic)
    functions: dict[str, str] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    published: bytes = b""
    version: int = 0
    tags: dict[str, str] = field(default_factory=dict)
    logs: list[Message] = field(default_factory=list)  # TaskLogsBatch
    changed: Signal = field(default_factory=Signal)
    done: bool = False  # stopped, and its last container has ended: no more logs

    @property
    def live(self) -> bool:
        """Tell whether it may still run something."""
        return self.state != int(api_pb2.APP_STATE_STOPPED)


@dataclass
class Input:
    """One input of a call, through all its deliveries."""

    id: str
    call: "Call"
    idx: int
    item: Message  # FunctionInput
    retry_count: int = 0
    attempt: int = 0  # attempts that the client itself asked for
    deliveries: list[str] = field(default_factory=list)  # task ids
    output: Message | None = None  # FunctionGetOutputsItem
    timed_out: bool = False
    crashes: int = 0

    @property
    def token(self) -> str:
        """Return what stands for this attempt on the input plane."""
        return f"at-{self.id}-{self.attempt}"


@dataclass
class Call:
    """A function call: its inputs, the stream of its chunks, its outputs in order of arrival."""

    id: str
    function: Function
    invocation_type: int
    from_input_plane: bool = False
    inputs: list[Input] = field(default_factory=list)
    chunks: list[Message] = field(default_factory=list)
    outputs: list[Message] = field(default_factory=list)
    created_at: float = field(default_factory=time.time)
    changed: Signal = field(default_factory=Signal)

    @property
    def unfinished(self) -> list[Input]:
        """Return the inputs without an output."""
        return [each for each in self.inputs if each.output is None]


@dataclass
class World:
    """Everything, and the counter that names it."""

    folder: Path
    apps: dict[str, App] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    class_methods: dict[str, Message] = field(default_factory=dict)  # ClassHandleMetadata by id
    deploys: list[Deploy] = field(default_factory=list)
    mounts: dict[str, list[Message]] = field(default_factory=dict)  # MountFile lists
    files: dict[str, bytes] = field(default_factory=dict)  # by sha256
    images: dict[str, Message] = field(default_factory=dict)  # Image
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    secret_names: dict[str, str] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    inputs: dict[str, Input] = field(default_factory=dict)
    queues: dict[str, dict[bytes, list[bytes]]] = field(default_factory=dict)
    dicts: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    volumes: dict[str, Path] = field(default_factory=dict)
    made: dict[str, float] = field(default_factory=dict)  # when queues and dicts were, by id
    names: dict[tuple[str, str, str], str] = field(default_factory=dict)  # (kind, env, name) to id
    changed: dict[str, Signal] = field(default_factory=lambda: defaultdict(Signal))
    _count: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _mark: str = field(default_factory=lambda: secrets.token_hex(4))

    def id(self, prefix: str) -> str:
        """Name something new, as no other service on this host does, which may run beside it."""
        return f"{prefix}-{self._mark}{next(self._count):014d}"

    def app_named(self, name: str, environment: str) -> App | None:
        """Find the deployed app of that name."""
        app = self.apps.get(self.names.get(("app", environment, name), ""))
        return app if app is not None and app.live else None
