"""How requests reach the rooms: one gRPC server for clients, one unix socket for each container.

A room is any object with methods marked by `rpc`; an RPC that no room answers is UNIMPLEMENTED. A
handler gets the request and the `Caller`, and returns the response (an async generator of responses
where the RPC streams). Faults, the check of credentials and the record of requests come first.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from grpclib import GRPCError, Status
from grpclib.config import Configuration
from grpclib.exceptions import StreamTerminatedError
from grpclib.server import Server
from modal._utils.grpc_utils import custom_detail_codec
from modal_proto import api_grpc

if TYPE_CHECKING:
    from .containers import Container

# Protobuf messages are open data here: the client's own package defines them, and checks them.
Message = Any
Handler = TypeVar("Handler", bound=Callable[..., Any])

PATIENCE = 10.0  # with handlers that are to end, seconds
WINDOW = 64 << 20  # bytes; as the client's, so that a frame of 16 MiB does not crawl


@dataclass(frozen=True)
class Caller:
    """Who asks: a client (`container` is None) or the container whose socket it came through."""

    metadata: dict[str, str]
    container: "Container | None" = None


@dataclass
class Record:
    """One request as it came in."""

    method: str
    request: Message
    caller: Caller


def rpc(handler: Handler) -> Handler:
    """Mark the answer to the RPC of this name: `app_create` answers `AppCreate`."""
    handler.__rpc__ = True  # type: ignore[attr-defined]
    return handler


def _handlers(rooms: Iterable[object]) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for room in rooms:
        for name, handler in inspect.getmembers(room, inspect.ismethod):
            if getattr(handler, "__rpc__", False):
                key = name.replace("_", "")
                assert key not in found, f"{name} is answered twice"
                found[key] = handler
    return found


@dataclass
class Gate:
    """What stands before every handler; the faults room plugs in here."""

    check: Callable[[str, Caller], None] = lambda _method, _caller: None
    delays: Callable[[str], float] = lambda _method: 0.0
    loses_answer: Callable[[str], bool] = lambda _method: False
    takes: Callable[[str, Caller], bool] = lambda _method, _caller: True
    before: Callable[[str, Message, Caller], None] = lambda _method, _request, _caller: None
    records: list[Record] = field(default_factory=list)
    bugs: list[Exception] = field(default_factory=list)  # of the service itself


class Switchboard:
    """Finds the handler of each RPC, and makes servers that answer by them."""

    def __init__(self, rooms: Iterable[object], gate: Gate) -> None:
        self._handlers = _handlers(rooms)
        self._gate = gate
        names = {name.lower() for name in vars(api_grpc.ModalClientBase) if name[0].isupper()}
        unknown = [name for name in self._handlers if name.lower() not in names]
        # An older client does not know every RPC; more than a few would be a misspelling.
        self.unknown_to_client = unknown

    def endpoint(self, container: "Container | None" = None) -> "Endpoint":
        """Build what answers at one address; what comes in there is `container`'s."""
        methods = {
            name: self._method(name, container)
            for name, function in vars(api_grpc.ModalClientBase).items()
            if name[0].isupper() and callable(function)
        }
        servicer = type("Servicer", (api_grpc.ModalClientBase,), methods)()
        config = Configuration(http2_connection_window_size=WINDOW, http2_stream_window_size=WINDOW)
        return Endpoint(Server([servicer], status_details_codec=custom_detail_codec, config=config))

    def _method(self, name: str, container: "Container | None") -> Callable[..., Any]:
        handler = self._handlers.get(name.lower())

        async def method(_self: object, stream: Any) -> None:
            request = await stream.recv_message()
            metadata = {key: str(value) for key, value in stream.metadata.items()}
            caller = Caller(metadata, container)
            await self._pass_gate(name, request, caller)
            if handler is None:
                raise GRPCError(Status.UNIMPLEMENTED, f"the loopback service has no {name}")
            try:
                if self._gate.loses_answer(name):
                    await self._lose_answer(name, handler, request, caller)
                await _answer(stream, handler(request, caller))
            except (GRPCError, StreamTerminatedError):
                raise
            except Exception as error:
                # The client retries most errors for minutes; this one it does not.
                self._gate.bugs.append(error)
                raise GRPCError(Status.DATA_LOSS, f"loopback service: {error!r}") from error

        return method

    async def _lose_answer(
        self, name: str, handler: Callable[..., Any], request: Message, caller: Caller
    ) -> None:
        if self._gate.takes(name, caller):
            await handler(request, caller)
        raise GRPCError(Status.UNAVAILABLE, "the answer is lost")

    async def _pass_gate(self, name: str, request: Message, caller: Caller) -> None:
        self._gate.records.append(Record(name, request, caller))
        delay = self._gate.delays(name) if caller.container is None else 0.0
        if delay:
            await asyncio.sleep(delay)
        self._gate.check(name, caller)
        self._gate.before(name, request, caller)


class Endpoint:
    """A server with its connections: where it closes they break, as where a service goes down."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._protocols: list[Any] = []
        self._listener: asyncio.Server | None = None

    def _connected(self) -> Any:
        protocol = self._server._protocol_factory()  # noqa: SLF001 -- its `start` forgets them
        self._protocols.append(protocol)
        return protocol

    async def listen(self, port: int) -> int:
        """Listen on a port of this machine (0: any), and return it."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._connected, "127.0.0.1", port)
        return int(self._listener.sockets[0].getsockname()[1])

    async def listen_at(self, path: Path) -> None:
        """Listen at a unix socket."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_unix_server(self._connected, str(path))

    async def close(self) -> None:
        """Close the listener and every connection, and wait for the handlers to end."""
        if self._listener is not None:
            self._listener.close()
        for protocol in self._protocols:
            if hasattr(protocol, "processor"):
                protocol.processor.close()
        handlers = [asyncio.ensure_future(each.handler.wait_closed()) for each in self._protocols]
        if handlers:
            await asyncio.wait(handlers, timeout=PATIENCE)


async def _answer(stream: Any, outcome: Any) -> None:
    if inspect.isasyncgen(outcome):
        try:
            async for message in outcome:
                await stream.send_message(message)
        finally:
            await outcome.aclose()
    else:
        await stream.send_message(await outcome)


class Signal:
    """Wakes all who wait for a next change."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake everyone who waits now."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait for the next `notify`, or until `seconds` have passed."""
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self._event.wait()
        except TimeoutError:
            return


class Jobs:
    """What the service does on its own account; a mistake in it is kept, never lost."""

    def __init__(self, bugs: list[Exception]) -> None:
        self._bugs = bugs
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, job: Coroutine[None, None, None]) -> None:
        """Begin something that nobody waits for."""
        task = asyncio.get_running_loop().create_task(self._guarded(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, job: Coroutine[None, None, None]) -> None:
        try:
            await job
        except Exception as error:  # noqa: BLE001 -- shown at the end of the test
            self._bugs.append(error)

    async def finished(self) -> None:
        """Wait for all of it."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """Break off all of it."""
        for task in self._tasks:
            task.cancel()
