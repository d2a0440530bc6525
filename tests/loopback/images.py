"""Images: each is this interpreter, or a virtual environment built from its recipe."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from google.protobuf.empty_pb2 import Empty
from modal_proto import api_pb2

from .builds import BuildError, Built, Layer, client_folder
from .faults import Faults
from .objects import held
from .state import World, digest
from .wire import Caller, Message, Signal, rpc

Result = api_pb2.GenericResult
Kind = Literal["interpreter", "venv"]


@dataclass
class Build:
    """One image: its log so far, and what came of it."""

    id: str
    definition: Message
    log: list[Message] = field(default_factory=list)  # TaskLogs
    result: Message | None = None  # GenericResult
    built: Built | None = None
    seen: bool = False  # to its end, by somebody
    started_at: float = field(default_factory=time.time)
    changed: Signal = field(default_factory=Signal)

    @property
    def text(self) -> str:
        """Return the whole log."""
        return "".join(entry.data for entry in self.log)


class Images:
    """Rooms for `Image...`. A build that failed is tried again when it is asked for again."""

    def __init__(
        self, world: World, faults: Faults, kind: Kind, cache: Path, spawn: Callable[..., object]
    ) -> None:
        self._world = world
        self._faults = faults
        self._kind = kind
        self._cache = cache
        self._spawn = spawn
        self.builds: dict[str, Build] = {}
        self._running: set[asyncio.Task[object]] = set()
        self.count = 0  # of builds that were really done

    def built(self, id: str) -> Built:
        """Return what was built for an image."""
        build = self.builds.get(id)
        if build is None or build.built is None:
            return Built(Path(sys.executable))
        return build.built

    @rpc
    async def image_get_or_create(self, request: Message, _: Caller) -> Message:
        id = "im-" + digest(request.image.SerializeToString(deterministic=True))
        self._world.images[id] = request.image
        build = self.builds.get(id)
        forced = request.force_build or request.ignore_cache
        failed = build is not None and build.result is not None and build.built is None
        if build is None or forced or failed:
            build = self.builds[id] = Build(id, request.image)
            self.count += 1
            self._spawn(self._build(build))
        response = api_pb2.ImageGetOrCreateResponse(image_id=id)
        if build.result is not None:
            response.result.CopyFrom(build.result)
            response.metadata.CopyFrom(_metadata())
        return response

    @rpc
    async def image_join_streaming(self, request: Message, _: Caller) -> AsyncIterator[Message]:
        build = held(self.builds, request.image_id)
        position = int(request.last_entry_id.partition("-")[0] or 0)
        deadline = time.monotonic() + (request.timeout or 55.0)
        if build.seen and not request.include_logs_for_finished and not position:
            position = len(build.log)
        while time.monotonic() < deadline:
            result = build.result
            while position < len(build.log):
                position += 1
                yield api_pb2.ImageJoinStreamingResponse(
                    task_logs=[build.log[position - 1]], entry_id=f"{position}-0"
                )
            if result is not None:
                build.seen = True
                yield api_pb2.ImageJoinStreamingResponse(
                    result=result, eof=True, metadata=_metadata()
                )
                return
            await build.changed.wait(deadline - time.monotonic())

    @rpc
    async def image_build_chain_get(self, request: Message, _: Caller) -> Message:
        build: Build | None = held(self.builds, request.image_id)
        steps: list[Message] = []
        while build is not None:
            step = api_pb2.ImageBuildStep(image_id=build.id)
            step.started_at.FromSeconds(int(build.started_at))
            steps.insert(0, step)
            bases = build.definition.base_images
            build = self.builds.get(bases[0].image_id) if bases else None
        return api_pb2.ImageBuildChainGetResponse(build_steps=steps)

    @rpc
    async def image_from_id(self, request: Message, _: Caller) -> Message:
        held(self._world.images, request.image_id)
        return api_pb2.ImageFromIdResponse(image_id=request.image_id, metadata=_metadata())

    @rpc
    async def image_delete(self, request: Message, _: Caller) -> Message:
        held(self.builds, request.image_id)
        del self.builds[request.image_id]
        return Empty()

    def close(self) -> None:
        """Break off what is still being built."""
        for task in self._running:
            task.cancel()

    # ------------------------------------------------------------ building

    async def _build(self, build: Build) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            async for piece in self._follow(build):
                if isinstance(piece, Built):
                    build.built = piece
                else:
                    _log(build, piece)
                    await asyncio.sleep(self._faults.time_of(piece))
            build.result = Result(status=Result.GENERIC_STATUS_SUCCESS)
        except BuildError as error:
            for line in str(error).splitlines():
                _log(build, line + "\n")
            build.result = Result(status=Result.GENERIC_STATUS_FAILURE, exitcode=1)
        except asyncio.CancelledError:
            build.result = Result(status=Result.GENERIC_STATUS_TERMINATED)
            raise
        finally:
            self._running.discard(task)
            build.changed.notify()

    async def _follow(self, build: Build) -> AsyncIterator[str | Built]:
        if self._faults.build_failure:
            raise BuildError(self._faults.build_failure)
        definition = build.definition
        layer = Layer(
            base=self._base(definition),
            commands=list(definition.dockerfile_commands),
            context=self._context(definition),
            folder=self._cache / build.id,
            client=self._cache / f"client-{_client_version()}",
        )
        if self._kind == "venv":
            client_folder(layer.client)
            async for piece in layer.build():
                yield piece
        else:
            async for piece in layer.pretend():
                yield piece

    def _base(self, definition: Message) -> Built | None:
        for base in definition.base_images:
            return self.builds[base.image_id].built
        return None

    def _context(self, definition: Message) -> dict[str, bytes]:
        files = {str(file.filename): bytes(file.data) for file in definition.context_files}
        for file in self._world.mounts.get(definition.context_mount_id, []):
            files[str(file.filename)] = self._world.files[file.sha256_hex]
        return files


def _client_version() -> str:
    import modal  # noqa: PLC0415 -- only a version is wanted, and only here

    return str(modal.__version__)


def _log(build: Build, text: str) -> None:
    entry = api_pb2.TaskLogs(
        data=text,
        timestamp=time.time(),
        file_descriptor=api_pb2.FILE_DESCRIPTOR_STDOUT,
    )
    build.log.append(entry)
    build.changed.notify()


def _metadata() -> Message:
    version = ".".join(map(str, sys.version_info[:3]))
    return api_pb2.ImageMetadata(
        python_version_info=f"Python {version}", image_builder_version="2025.06"
    )
