"""One container: its folder, its variables, its socket, its processes, its log."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from modal_proto import api_pb2

from .builds import Built
from .state import Function, Input, World
from .volumes import mount_volumes
from .wire import Endpoint, Message

INSIDE = Path(__file__).with_name("inside.py")
ROOT = "/root"


@dataclass
class Place:
    """Where containers of this service live, and what all of them get."""

    sockets: Path  # short: a socket's path has 107 characters at most
    folder: Path
    environ: dict[str, str]
    pretend: bool


@dataclass
class Container:
    """A container from its start to its end; `exit` is None while it runs."""

    id: str
    function: Function
    definition: Message
    root: Path
    started_at: float = field(default_factory=time.time)
    argv: list[str] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=dict)
    log: bytearray = field(default_factory=bytearray)
    inputs: list[str] = field(default_factory=list)  # every delivery, in order
    frames: int = 0  # chunks that it has sent
    current: Input | None = None
    idle_since: float = field(default_factory=time.monotonic)
    asked: bool = False  # for an input, ever: its start went well
    draining: bool = False
    exit: int | None = None
    result: Message | None = None
    waiting: "asyncio.Future[Message] | None" = None
    cancelled: "asyncio.Queue[str]" = field(default_factory=asyncio.Queue)
    process: asyncio.subprocess.Process | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def gpu(self) -> str | None:
        """Return what it was given: `"A100:2"`, or None."""
        config = self.definition.resources.gpu_config
        return f"{config.gpu_type}:{config.count}" if config.gpu_type else None

    @property
    def pid(self) -> int | None:
        """Return the process id of its first process."""
        return self.process.pid if self.process else None

    @property
    def free(self) -> bool:
        """Tell whether it has, or will have, room for an input."""
        return self.exit is None and not self.draining and self.current is None

    def signal(self, number: int) -> None:
        """Send a signal to the entrypoint."""
        stdin = self.process.stdin if self.process else None
        if stdin is not None and not stdin.is_closing():
            with contextlib.suppress(ConnectionError):
                stdin.write(f"signal {number}\n".encode())

    def kill(self) -> None:
        """End everything in it at once."""
        self.draining = True
        self.unleash()

    def unleash(self) -> None:
        """Close the leash: whatever is still in the container ends with it."""
        stdin = self.process.stdin if self.process else None
        if stdin is not None:
            stdin.close()


def launch_arguments(
    container: Container, layout: Message, input_plane: str, environment: str
) -> Message:
    """Build what the entrypoint reads at its start."""
    return api_pb2.ContainerArguments(
        task_id=container.id,
        function_id=container.function.id,
        app_id=container.function.app_id,
        function_def=container.definition,
        serialized_params=container.function.params,
        environment_name=environment,
        app_layout=layout,
        input_plane_server_url=input_plane,
    )


def link_tree(source: Path, target: Path, depth: int = 0) -> None:
    """Show a folder at another place; only what several folders share is made anew."""
    target.mkdir(exist_ok=True)
    for entry in sorted(source.iterdir()):
        place = target / entry.name
        if not entry.is_dir():
            place.unlink(missing_ok=True)
            place.symlink_to(entry)
        elif depth == 0 or place.exists():
            if place.is_symlink():
                shared = place.resolve()
                place.unlink()
                link_tree(shared, place, depth + 1)
            link_tree(entry, place, depth + 1)
        else:
            place.symlink_to(entry)


def layer(world: World, mount: str) -> Path:
    """Write the files of a mount, once; containers see it through links."""
    folder = world.folder / "layers" / mount
    if not folder.exists():
        draft = folder.with_suffix(".draft")
        draft.mkdir(parents=True)
        for file in world.mounts[mount]:
            place = draft / str(file.filename).lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(world.files[file.sha256_hex])
            place.chmod((file.mode & 0o777) or 0o644)
        draft.rename(folder)
    return folder


def _measured() -> dict[str, str]:
    """Return what makes coverage measure the processes that a measured one starts."""
    return {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}


class Launcher:
    """Starts containers."""

    def __init__(
        self,
        world: World,
        place: Place,
        endpoint: Callable[[Container], Endpoint],
        log: Callable[[Container, str, int], None],
    ) -> None:
        self._world = world
        self._place = place
        self._endpoint = endpoint
        self._log = log

    async def run(self, container: Container, built: Built, layout: Message, plane: bool) -> None:
        """Start a container, and return when it has ended and nothing of it is left."""
        socket = self._place.sockets / f"{container.id[-8:]}"
        endpoint = self._endpoint(container)
        await endpoint.listen_at(socket)
        try:
            url = f"unix://{socket}"
            self._furnish(container, built, url)
            arguments = container.root / "arguments"
            described = launch_arguments(
                container, layout, url if plane else "", self._environment(container)
            )
            arguments.write_bytes(described.SerializeToString())
            container.environ["MODAL_CONTAINER_ARGUMENTS_PATH"] = str(arguments)
            await self._run_process(container)
        finally:
            await endpoint.close()
            socket.unlink(missing_ok=True)
            shutil.rmtree(container.root, ignore_errors=True)

    def _environment(self, container: Container) -> str:
        return self._world.apps[container.function.app_id].environment or "main"

    def _furnish(self, container: Container, built: Built, url: str) -> None:
        definition, world = container.definition, self._world
        home = container.root / ROOT.lstrip("/")
        home.mkdir(parents=True)
        layers = [*reversed(built.roots), *(layer(world, each) for each in definition.mount_ids)]
        for each in layers:
            link_tree(each, container.root)
        mount_volumes(world, definition, container.root)
        workdir = container.root / built.workdir.lstrip("/")
        workdir.mkdir(parents=True, exist_ok=True)
        secrets: dict[str, str] = {}
        for id in definition.secret_ids:
            secrets |= world.secrets[id]
        extra = self._place.environ.get("PYTHONPATH")
        container.environ = {
            "PATH": f"{built.python.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(home),
            "PYTHONUNBUFFERED": "1",
            **_measured(),
            **built.environ,
            **self._pretended(definition),
            **self._place.environ,
            **secrets,
            "MODAL_SERVER_URL": url,
            "MODAL_TASK_ID": container.id,
            "MODAL_IS_REMOTE": "1",
            "MODAL_ENVIRONMENT": self._environment(container),
            "MODAL_IMAGE_ID": definition.image_id,
            "MODAL_CLOUD_PROVIDER": "CLOUD_PROVIDER_LOOPBACK",
            "MODAL_REGION": "loopback",
        }
        if extra:
            container.environ["PYTHONPATH"] = f"{home}{os.pathsep}{extra}"
        entry = [str(built.python), "-m", "modal._container_entrypoint"]
        container.argv = [sys.executable, "-I", "-S", str(INSIDE), *entry]
        container.environ["PWD"] = str(workdir)

    def _pretended(self, definition: Message) -> dict[str, str]:
        gpu = definition.resources.gpu_config
        if not self._place.pretend or not gpu.gpu_type:
            return {}
        return {"PYTEST_REMOTEGPU_PRETEND_GPUS": str(gpu.count)}

    async def _run_process(self, container: Container) -> None:
        process = await asyncio.create_subprocess_exec(
            *container.argv,
            env=container.environ,
            cwd=container.environ["PWD"],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        container.process = process
        if container.draining:  # killed before it was born
            container.kill()
        assert process.stdout is not None
        assert process.stderr is not None
        await asyncio.gather(
            self._read(container, process.stdout, api_pb2.FILE_DESCRIPTOR_STDOUT),
            self._read(container, process.stderr, api_pb2.FILE_DESCRIPTOR_STDERR),
            process.wait(),
        )
        container.unleash()
        status = process.returncode
        container.exit = status if status is not None else -signal.SIGKILL
        container.ended.set()

    async def _read(
        self, container: Container, stream: asyncio.StreamReader, descriptor: int
    ) -> None:
        while data := await stream.read(65536):
            container.log.extend(data)
            self._log(container, data.decode("utf-8", "replace"), descriptor)
