"""Volumes as of version 1: a container sees a copy, `commit` sends it back, `reload` renews it.

A container sees them below its own folder, so one mounted at `/root/data` is `data` to code that
runs in `/root`; an absolute path leads out of it.
"""

import shutil
from pathlib import Path

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from .objects import forget, held, named
from .state import World
from .wire import Caller, Message, rpc


class Volumes:
    """Rooms for `Volume...`."""

    def __init__(self, world: World) -> None:
        self._world = world

    @rpc
    async def volume_get_or_create(self, request: Message, _: Caller) -> Message:
        id, new = named(self._world, "volume", "vo", request)
        if new:
            self._world.volumes[id] = self._world.folder / "volumes" / id
            self._world.volumes[id].mkdir(parents=True)
        version = api_pb2.VOLUME_FS_VERSION_V1
        metadata = api_pb2.VolumeMetadata(version=version, name=request.deployment_name)
        return api_pb2.VolumeGetOrCreateResponse(volume_id=id, version=version, metadata=metadata)

    @rpc
    async def volume_get_by_id(self, request: Message, _: Caller) -> Message:
        held(self._world.volumes, request.volume_id)
        metadata = api_pb2.VolumeMetadata(version=api_pb2.VOLUME_FS_VERSION_V1)
        return api_pb2.VolumeGetByIdResponse(volume_id=request.volume_id, metadata=metadata)

    @rpc
    async def volume_heartbeat(self, request: Message, _: Caller) -> Message:
        held(self._world.volumes, request.volume_id)
        return Empty()

    @rpc
    async def volume_delete(self, request: Message, _: Caller) -> Message:
        held(self._world.volumes, request.volume_id)
        forget(self._world, request.volume_id)
        shutil.rmtree(self._world.volumes.pop(request.volume_id))
        return Empty()

    @rpc
    async def volume_put_files(self, request: Message, _: Caller) -> Message:
        folder = held(self._world.volumes, request.volume_id)
        for file in request.files:
            place = folder / str(file.filename).lstrip("/")
            if request.disallow_overwrite_existing_files and place.exists():
                raise GRPCError(Status.ALREADY_EXISTS, f"{file.filename} exists already")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(self._world.files[file.sha256_hex])
        return Empty()

    @rpc
    async def volume_commit(self, request: Message, caller: Caller) -> Message:
        stored, seen, mount = self._seen(request.volume_id, caller)
        if mount.read_only:
            raise GRPCError(Status.FAILED_PRECONDITION, "the volume is mounted read-only")
        replace(seen, stored)
        return api_pb2.VolumeCommitResponse(skip_reload=True)

    @rpc
    async def volume_reload(self, request: Message, caller: Caller) -> Message:
        stored, seen, _ = self._seen(request.volume_id, caller)
        replace(stored, seen)
        return Empty()

    def _seen(self, id: str, caller: Caller) -> tuple[Path, Path, Message]:
        folder = held(self._world.volumes, id)
        if caller.container is not None:
            for mount in caller.container.definition.volume_mounts:
                if mount.volume_id == id:
                    inside = str(mount.sub_path).strip("/")
                    seen = caller.container.root / str(mount.mount_path).lstrip("/")
                    return folder / inside, seen, mount
        raise GRPCError(Status.FAILED_PRECONDITION, f"{id} is not mounted there")


def replace(source: Path, target: Path) -> None:
    """Make a folder's content that of another, the folder itself staying what it is."""
    source.mkdir(parents=True, exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    for entry in target.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)


def mount_volumes(world: World, definition: Message, root: Path) -> None:
    """Show the volumes of a function in the folder of a new container."""
    for mount in definition.volume_mounts:
        seen = root / str(mount.mount_path).lstrip("/")
        replace(world.volumes[mount.volume_id] / str(mount.sub_path).strip("/"), seen)
        if mount.read_only:
            for entry in [seen, *seen.rglob("*")]:
                entry.chmod(entry.stat().st_mode & ~0o222)
