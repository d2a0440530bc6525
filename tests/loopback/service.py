"""The service as tests see it: started by `with`, in a thread of its own, gone at the end."""

import asyncio
import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .admin import Admin, Logs, add_log
from .apps import Apps, Functions
from .blobs import Blobs
from .calls import Calls, Worker
from .containers import Container, Launcher, Place
from .faults import Faults
from .images import Images, Kind
from .objects import Dicts, Mounts, Queues, Secrets
from .plane import InputPlane
from .scheduling import Limits, Scheduler
from .state import App, Call, Deploy, Input, World
from .volumes import Volumes
from .wire import Endpoint, Gate, Jobs, Record, Switchboard

PATIENCE = 60.0  # that its start and its end may take, seconds


class LoopbackModal:
    """Modal's control plane on this machine, for the real client and the real entrypoint.

    `folder` is where it writes. `port` 0 takes a free one. `container_environ` goes into every
    container. With `pretend`, a container that was given GPUs is told to pretend so many. `images`
    says what an image is: this interpreter, or a virtual environment built from its recipe, which
    is kept in `image_cache`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        input_plane: bool = False,
        pretend: bool = True,
        container_environ: Mapping[str, str] | None = None,
        images: Kind = "interpreter",
        image_cache: Path | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.folder = folder
        self.faults = Faults()
        self.limits = limits or Limits()
        self._port = port
        self._with_input_plane = input_plane
        self._pretend = pretend
        self._container_environ = dict(container_environ or {})
        self._image_kind = images
        self._cache = image_cache or folder / "images"
        self.rates: dict[str, str] = {}  # what the workspace pays, by the service's own names
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="loopback-modal", daemon=True)
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.world = World(folder)
        self._gate = Gate()

    # ------------------------------------------------------------ life

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        assert self._started.wait(PATIENCE), "the loopback service does not start"
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the loopback service does not end"
        failure = self._failure or next(iter(self._gate.bugs), None)
        if failure is not None and error is None:
            raise failure

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 -- carried into the test's own thread
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        sockets = Path(tempfile.mkdtemp(prefix="lm-"))
        blobs = Blobs(self.world)
        await blobs.start()
        try:
            self._build(blobs, sockets)
            await self._listen()
            self._started.set()
            while not self._stop.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await self._stop.wait()
                self._scheduler.end_abandoned()
        finally:
            await self._close(blobs, sockets)

    def _build(self, blobs: Blobs, sockets: Path) -> None:
        self._jobs = Jobs(self._gate.bugs)
        images = self.images = Images(
            self.world, self.faults, self._image_kind, self._cache, self._jobs.spawn
        )
        self._scheduler = Scheduler(self.world, images, self.faults, self.limits, self._jobs)
        self._admin = Admin(self.world, lambda: self._scheduler.containers)
        self._admin.rates = self.rates
        self._scheduler.plane = self._with_input_plane
        gate = self._gate
        gate.check, gate.delays = self.faults.check, self.faults.delay_of
        gate.loses_answer, gate.takes = self.faults.loses_answer, self.faults.takes
        calls = Calls(self.world, self._scheduler, self.faults)
        worker = Worker(self.world, self._scheduler, self.faults)
        self._switchboard = Switchboard(
            [
                Apps(self.world, self.faults, self._scheduler.stop_app),
                Functions(
                    self.world, self.faults, lambda: self.url if self._with_input_plane else ""
                ),
                calls,
                InputPlane(self.world, calls),
                worker,
                Queues(self.world, self.faults),
                Dicts(self.world, self.faults, worker.claimed),
                Secrets(self.world),
                Mounts(self.world),
                Volumes(self.world),
                self._admin,
                Logs(self.world),
                images,
                blobs,
            ],
            gate,
        )
        place = Place(sockets, self.folder, self._container_environ, self._pretend)
        self._scheduler.launcher = Launcher(
            self.world, place, self._switchboard.endpoint, self._log
        )
        self._endpoint: Endpoint | None = None

    async def _listen(self) -> None:
        self._endpoint = self._switchboard.endpoint()
        self._port = await self._endpoint.listen(self._port)

    async def _deafen(self) -> None:
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.close()

    async def _close(self, blobs: Blobs, sockets: Path) -> None:
        if hasattr(self, "_scheduler"):
            self.images.close()
            await self._scheduler.close()
            await self._deafen()
        await blobs.close()
        shutil.rmtree(sockets, ignore_errors=True)

    def _log(self, container: Container, text: str, descriptor: int) -> None:
        app = self.world.apps[container.function.app_id]
        add_log(app, container, text, descriptor)

    def _in_loop(self, act: Callable[[], Any]) -> Any:
        """Do something in the service's thread, and return its result."""
        assert self._loop is not None

        async def job() -> Any:
            result = act()
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(job(), self._loop).result(30)

    # ------------------------------------------------------------ what tests look at

    @property
    def url(self) -> str:
        """Return the address that clients dial."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables that make a client come here, and look at no file of the user's."""
        token_id, token_secret = self.faults.token
        return {
            "MODAL_SERVER_URL": self.url,
            "MODAL_TOKEN_ID": token_id,
            "MODAL_TOKEN_SECRET": token_secret,
            "MODAL_CONFIG_PATH": str(self.folder / "no-modal.toml"),
            "MODAL_ENVIRONMENT": "main",
        }

    @property
    def containers(self) -> list[Container]:
        """Return every container since the start, in order."""
        return self._scheduler.containers

    @property
    def running(self) -> list[Container]:
        """Return the containers that have not ended."""
        return [each for each in self.containers if each.exit is None]

    @property
    def apps(self) -> list[App]:
        """Return every app, stopped ones too."""
        return list(self.world.apps.values())

    @property
    def calls(self) -> list[Call]:
        """Return every function call, in order."""
        return list(self.world.calls.values())

    @property
    def inputs(self) -> list[Input]:
        """Return every input, in order."""
        return list(self.world.inputs.values())

    @property
    def deploys(self) -> list[Deploy]:
        """Return every publication of an app, in order."""
        return self.world.deploys

    @property
    def requests(self) -> list[Record]:
        """Return every request, in order."""
        return self._gate.records

    def count(self, method: str) -> int:
        """Return how often an RPC was called."""
        return sum(record.method == method for record in self.requests)

    def add_secret(self, name: str, values: Mapping[str, str]) -> None:
        """Store a secret, as a person does on the dashboard."""
        id = self.world.id("st")
        self.world.names["secret", "main", name] = id
        self.world.secrets[id] = dict(values)
        self.world.secret_names[id] = name

    def age(self, seconds: float) -> None:
        """Let all that there is be older: apps, queues, dicts, calls, containers."""
        for app in self.world.apps.values():
            app.created_at -= seconds
        for id in self.world.made:
            self.world.made[id] -= seconds
        for call in self.world.calls.values():
            call.created_at -= seconds
        for container in self.containers:
            container.started_at -= seconds

    def named(self, kind: str) -> set[str]:
        """Return the names of all queues (`"queue"`) or dicts (`"dict"`)."""
        return {name for of, _environment, name in self.world.names if of == kind}

    def wait_until(self, condition: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait until something holds of the service; fail if it does not."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s")
            time.sleep(0.01)

    # ------------------------------------------------------------ what tests do to it

    def preempt(self, container: Container) -> None:
        """Preempt a container now."""
        self._in_loop(lambda: self._scheduler.preempt(container))

    def lose(self, container: Container) -> None:
        """Kill a container with all that is in it, now."""
        self._in_loop(container.kill)

    def retire(self, container: Container) -> None:
        """Let a container end by itself, as the scaledown window would."""
        self._in_loop(lambda: self._scheduler.retire(container))

    def down(self) -> None:
        """Stop listening for clients; containers go on."""
        self._in_loop(self._deafen)

    def up(self) -> None:
        """Listen again, at the same address."""
        self._in_loop(self._listen)

    def everything(self) -> Iterator[tuple[str, bytes]]:
        """Yield all that is stored here, with where; a secret's value belongs under `secret/`."""
        for number, record in enumerate(list(self.requests)):
            yield f"request/{number}/{record.method}", record.request.SerializeToString()
        for id, data in list(self.world.files.items()):
            yield f"file/{id}", data
        for id, data in list(self.world.blobs.items()):
            yield f"blob/{id}", data
        yield from self._made()
        for id, values in self.world.secrets.items():
            yield f"secret/{id}", repr(values).encode()
        for container in list(self.containers):
            yield f"container/{container.id}/argv", "\0".join(container.argv).encode()
            yield f"container/{container.id}/environ", repr(container.environ).encode()
            yield f"container/{container.id}/log", bytes(container.log)
        yield from self._stores()

    def _made(self) -> Iterator[tuple[str, bytes]]:
        for id, image in list(self.world.images.items()):
            yield f"image/{id}", image.SerializeToString()
        for id, build in list(self.images.builds.items()):
            yield f"image/{id}/log", build.text.encode()
        for id, folder in self.world.volumes.items():
            for path in folder.rglob("*"):
                if path.is_file():
                    yield f"volume/{id}/{path.relative_to(folder)}", path.read_bytes()

    def _stores(self) -> Iterator[tuple[str, bytes]]:
        for id, partitions in self.world.queues.items():
            yield f"queue/{id}", repr(partitions).encode()
        for id, content in self.world.dicts.items():
            yield f"dict/{id}", repr(content).encode()
        for call in self.calls:
            for number, output in enumerate(call.outputs):
                yield f"output/{call.id}/{number}", output.SerializeToString()
            for number, chunk in enumerate(call.chunks):
                yield f"chunk/{call.id}/{number}", chunk.SerializeToString()
