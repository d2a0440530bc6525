"""Queues, dicts, secrets and mounts."""

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from .faults import Faults
from .state import World, digest
from .wire import Caller, Message, rpc

Value = TypeVar("Value")

CREATES = {
    api_pb2.OBJECT_CREATION_TYPE_CREATE_IF_MISSING,
    api_pb2.OBJECT_CREATION_TYPE_CREATE_FAIL_IF_EXISTS,
    api_pb2.OBJECT_CREATION_TYPE_CREATE_OVERWRITE_IF_EXISTS,
}
ANONYMOUS = {
    api_pb2.OBJECT_CREATION_TYPE_EPHEMERAL,
    api_pb2.OBJECT_CREATION_TYPE_ANONYMOUS_OWNED_BY_APP,
}


def named(world: World, kind: str, prefix: str, request: Message) -> tuple[str, bool]:
    """Find or make the object of a `...GetOrCreate` request; tell whether it is new."""
    how = request.object_creation_type
    if how in ANONYMOUS:
        return world.id(prefix), True
    key = (kind, request.environment_name, request.deployment_name)
    if key in world.names:
        if how == api_pb2.OBJECT_CREATION_TYPE_CREATE_FAIL_IF_EXISTS:
            raise GRPCError(Status.ALREADY_EXISTS, f"{kind} {key[2]!r} exists already")
        return world.names[key], how == api_pb2.OBJECT_CREATION_TYPE_CREATE_OVERWRITE_IF_EXISTS
    if how not in CREATES:
        raise GRPCError(
            Status.NOT_FOUND, f"{kind.capitalize()} '{key[2]}' not found in environment '{key[1]}'"
        )
    world.names[key] = world.id(prefix)
    return world.names[key], True


def held(table: dict[str, Value], id: str) -> Value:
    """Look up an object by the id that the client sent."""
    if id not in table:
        raise GRPCError(Status.NOT_FOUND, f"{id!r} not found")
    return table[id]


LARGEST_ITEM = 1 << 20  # bytes; these three are what the service documents
MOST_ITEMS = 5000
LARGEST_PARTITION = 64 << 20


def check_room(partition: list[bytes], values: list[bytes]) -> None:
    """Refuse what a partition of a queue can't hold."""
    if any(len(value) > LARGEST_ITEM for value in values):
        raise GRPCError(Status.INVALID_ARGUMENT, "an item of a queue may have 1 MiB at most")
    held_bytes = sum(map(len, partition)) + sum(map(len, values))
    if len(partition) + len(values) > MOST_ITEMS or held_bytes > LARGEST_PARTITION:
        raise GRPCError(Status.RESOURCE_EXHAUSTED, "the partition is full")


def created(world: World, id: str) -> dict[str, Message]:
    """Say of an object when it was made, and by whom."""
    info = api_pb2.CreationInfo(created_at=world.made.get(id, 0.0), created_by="loopback")
    return {"creation_info": info}


def page(world: World, kind: str, request: Message) -> Iterator[tuple[str, str]]:
    """List names and ids of what a `...List` request asks for, the newest first."""
    named = {
        id: name
        for (of, environment, name), id in world.names.items()
        if (of, environment) == (kind, request.environment_name)
    }
    asked = request.pagination
    before = asked.created_before or float("inf")
    found = sorted(named, key=lambda id: world.made[id], reverse=True)
    for id in [each for each in found if world.made[each] < before][: asked.max_objects or None]:
        yield named[id], id


class Queues:
    """Partitions of byte strings, first in, first out."""

    def __init__(self, world: World, faults: Faults) -> None:
        self._world = world
        self._faults = faults

    @rpc
    async def queue_list(self, request: Message, _: Caller) -> Message:
        response = api_pb2.QueueListResponse()
        for name, id in page(self._world, "queue", request):
            metadata = api_pb2.QueueMetadata(name=name, **created(self._world, id))
            response.queues.add(name=name, queue_id=id, metadata=metadata)
        return response

    @rpc
    async def queue_get_or_create(self, request: Message, _: Caller) -> Message:
        id, new = named(self._world, "queue", "qu", request)
        if new:
            self._world.queues[id] = {}
            self._world.made[id] = time.time() + self._faults.ahead
        metadata = api_pb2.QueueMetadata(name=request.deployment_name, **created(self._world, id))
        return api_pb2.QueueGetOrCreateResponse(queue_id=id, metadata=metadata)

    @rpc
    async def queue_get_by_id(self, request: Message, _: Caller) -> Message:
        held(self._world.queues, request.queue_id)
        return api_pb2.QueueGetByIdResponse(queue_id=request.queue_id)

    @rpc
    async def queue_put(self, request: Message, _: Caller) -> Message:
        queue = held(self._world.queues, request.queue_id)
        partition = queue.get(request.partition_key, [])
        check_room(partition, list(request.values))
        queue[request.partition_key] = [*partition, *request.values]
        self._world.changed[request.queue_id].notify()
        return Empty()

    @rpc
    async def queue_get(self, request: Message, _: Caller) -> Message:
        deadline = time.monotonic() + request.timeout
        while True:
            queue = held(self._world.queues, request.queue_id)
            values = queue.get(request.partition_key, [])
            if values or time.monotonic() >= deadline:
                count = max(request.n_values, 1)
                taken, queue[request.partition_key] = values[:count], values[count:]
                return api_pb2.QueueGetResponse(values=taken)
            await self._world.changed[request.queue_id].wait(deadline - time.monotonic())

    @rpc
    async def queue_len(self, request: Message, _: Caller) -> Message:
        queue = held(self._world.queues, request.queue_id)
        counted = queue.values() if request.total else [queue.get(request.partition_key, [])]
        return api_pb2.QueueLenResponse(len=sum(map(len, counted)))

    @rpc
    async def queue_clear(self, request: Message, _: Caller) -> Message:
        queue = held(self._world.queues, request.queue_id)
        if request.all_partitions:
            queue.clear()
        queue.pop(request.partition_key, None)
        return Empty()

    @rpc
    async def queue_heartbeat(self, request: Message, _: Caller) -> Message:
        held(self._world.queues, request.queue_id)
        return Empty()

    @rpc
    async def queue_delete(self, request: Message, _: Caller) -> Message:
        held(self._world.queues, request.queue_id)
        forget(self._world, request.queue_id)
        del self._world.queues[request.queue_id]
        return Empty()


class Dicts:
    """Keys and values as bytes.

    :param claimed: told of a container that has put what was not there.
    """

    def __init__(
        self, world: World, faults: Faults, claimed: Callable[[Caller], Awaitable[None]]
    ) -> None:
        self._world = world
        self._faults = faults
        self._claimed = claimed

    @rpc
    async def dict_list(self, request: Message, _: Caller) -> Message:
        response = api_pb2.DictListResponse()
        for name, id in page(self._world, "dict", request):
            metadata = api_pb2.DictMetadata(name=name, **created(self._world, id))
            response.dicts.add(name=name, dict_id=id, metadata=metadata)
        return response

    @rpc
    async def dict_get_or_create(self, request: Message, _: Caller) -> Message:
        id, new = named(self._world, "dict", "di", request)
        if new:
            self._world.dicts[id] = {entry.key: entry.value for entry in request.data}
            self._world.made[id] = time.time() + self._faults.ahead
        metadata = api_pb2.DictMetadata(name=request.deployment_name, **created(self._world, id))
        return api_pb2.DictGetOrCreateResponse(dict_id=id, metadata=metadata)

    @rpc
    async def dict_get_by_id(self, request: Message, _: Caller) -> Message:
        held(self._world.dicts, request.dict_id)
        return api_pb2.DictGetByIdResponse(dict_id=request.dict_id)

    @rpc
    async def dict_update(self, request: Message, caller: Caller) -> Message:
        content = held(self._world.dicts, request.dict_id)
        created = False
        for entry in request.updates:
            if request.if_not_exists and entry.key in content:
                continue
            content[entry.key] = entry.value
            created = True
        if request.if_not_exists and created and caller.container is not None:
            await self._claimed(caller)
        return api_pb2.DictUpdateResponse(created=created)

    @rpc
    async def dict_get(self, request: Message, _: Caller) -> Message:
        value = held(self._world.dicts, request.dict_id).get(request.key)
        return api_pb2.DictGetResponse(found=value is not None, value=value)

    @rpc
    async def dict_pop(self, request: Message, _: Caller) -> Message:
        value = held(self._world.dicts, request.dict_id).pop(request.key, None)
        return api_pb2.DictPopResponse(found=value is not None, value=value)

    @rpc
    async def dict_contains(self, request: Message, _: Caller) -> Message:
        content = held(self._world.dicts, request.dict_id)
        return api_pb2.DictContainsResponse(found=request.key in content)

    @rpc
    async def dict_len(self, request: Message, _: Caller) -> Message:
        return api_pb2.DictLenResponse(len=len(held(self._world.dicts, request.dict_id)))

    @rpc
    async def dict_clear(self, request: Message, _: Caller) -> Message:
        held(self._world.dicts, request.dict_id).clear()
        return Empty()

    @rpc
    async def dict_heartbeat(self, request: Message, _: Caller) -> Message:
        held(self._world.dicts, request.dict_id)
        return Empty()

    @rpc
    async def dict_delete(self, request: Message, _: Caller) -> Message:
        held(self._world.dicts, request.dict_id)
        forget(self._world, request.dict_id)
        del self._world.dicts[request.dict_id]
        return Empty()


def forget(world: World, id: str) -> None:
    """Free the name of an object that is deleted."""
    for key in [key for key, value in world.names.items() if value == id]:
        del world.names[key]


class Secrets:
    """Variables by the name of their secret; the values never leave but into a container."""

    def __init__(self, world: World) -> None:
        self._world = world

    @rpc
    async def secret_get_or_create(self, request: Message, _: Caller) -> Message:
        world = self._world
        values = dict(request.env_dict)
        if request.object_creation_type in ANONYMOUS:
            # By content: what is the same is no reason for a new deployment.
            id = "st-" + digest(*sorted(f"{key}={value}" for key, value in values.items()))
            world.secrets[id] = values
        else:
            id, new = named(world, "secret", "st", request)
            if new:
                world.secrets[id] = values
            world.secret_names[id] = request.deployment_name
        missing = [key for key in request.required_keys if key not in world.secrets[id]]
        if missing:
            raise GRPCError(
                Status.FAILED_PRECONDITION,
                f"Secret is missing key(s): {', '.join(missing)}",
            )
        metadata = api_pb2.SecretMetadata(
            name=request.deployment_name, keys=sorted(world.secrets[id])
        )
        return api_pb2.SecretGetOrCreateResponse(secret_id=id, metadata=metadata)


class Mounts:
    """Files by content, and lists of them."""

    def __init__(self, world: World) -> None:
        self._world = world

    @rpc
    async def mount_batched_check_existence(self, request: Message, _: Caller) -> Message:
        missing = [name for name in request.sha256_hex_hashes if name not in self._world.files]
        return api_pb2.MountBatchedCheckExistenceResponse(missing_sha256_hex_hashes=missing)

    @rpc
    async def mount_put_file(self, request: Message, _: Caller) -> Message:
        if request.WhichOneof("data_oneof") == "data_blob_id":
            self._world.files[request.sha256_hex] = held(self._world.blobs, request.data_blob_id)
        elif request.WhichOneof("data_oneof") == "data":
            self._world.files[request.sha256_hex] = request.data
        exists = request.sha256_hex in self._world.files
        return api_pb2.MountPutFileResponse(exists=exists)

    @rpc
    async def mount_get_or_create(self, request: Message, _: Caller) -> Message:
        world = self._world
        files = sorted(request.files, key=lambda file: str(file.filename))
        content = digest(*(file.SerializeToString(deterministic=True) for file in files))
        if request.deployment_name and not files:  # the client's own published mounts
            id = "mo-" + digest(request.deployment_name)
        else:
            id = "mo-" + content
        world.mounts[id] = files
        metadata = api_pb2.MountHandleMetadata(content_checksum_sha256_hex=content)
        return api_pb2.MountGetOrCreateResponse(mount_id=id, handle_metadata=metadata)
