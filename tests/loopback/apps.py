"""Apps and their functions: created, published, looked up, bound to options, stopped."""

import time
from collections.abc import Callable

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from .faults import Faults
from .objects import CREATES, held
from .state import App, Deploy, Function, World, digest
from .wire import Caller, Message, rpc

GPUS = (
    *("T4", "L4", "A10", "A10G", "L40S", "A100", "A100-40GB", "A100-80GB", "RTX-PRO-6000"),
    *("H100", "H100!", "H200", "B200", "B200+"),
)
LARGEST_COUNT = 8


def check_gpu(resources: Message) -> None:
    """Refuse a GPU that does not exist, as the service does (the client does not look)."""
    gpu = resources.gpu_config
    if gpu.gpu_type and gpu.gpu_type not in GPUS:
        known = ", ".join(GPUS)
        raise GRPCError(
            Status.INVALID_ARGUMENT, f"Invalid GPU type: {gpu.gpu_type!r}. Known types: {known}"
        )
    if gpu.gpu_type and not 1 <= gpu.count <= LARGEST_COUNT:
        raise GRPCError(
            Status.INVALID_ARGUMENT,
            f"Invalid GPU count: {gpu.count}. At most {LARGEST_COUNT} of {gpu.gpu_type}",
        )


def stopped(world: World, app: App) -> None:
    """Note that an app has ended."""
    app.state, app.stopped_at = api_pb2.APP_STATE_STOPPED, time.time()
    if world.names.get(("app", app.environment, app.name)) == app.id:
        del world.names["app", app.environment, app.name]
    app.changed.notify()


class Apps:
    """Rooms for `App...` and `Environment...`."""

    def __init__(self, world: World, faults: Faults, stop: Callable[[App], None]) -> None:
        self._world = world
        self._faults = faults
        self._stop = stop

    @rpc
    async def client_hello(self, _request: Message, _: Caller) -> Message:
        return api_pb2.ClientHelloResponse(image_builder_version=self._faults.builder)

    @rpc
    async def environment_get_or_create(self, request: Message, _: Caller) -> Message:
        name = request.deployment_name or "main"
        known = self._faults.environments
        if known is not None and name not in known and request.object_creation_type not in CREATES:
            raise GRPCError(Status.NOT_FOUND, f"Environment {name!r} not found")
        settings = api_pb2.EnvironmentSettings(image_builder_version=self._faults.builder)
        return api_pb2.EnvironmentGetOrCreateResponse(
            environment_id="en-" + digest(name),
            metadata=api_pb2.EnvironmentMetadata(name=name, settings=settings),
        )

    @rpc
    async def app_get_by_deployment_name(self, request: Message, _: Caller) -> Message:
        app = self._world.app_named(request.name, request.environment_name)
        return api_pb2.AppGetByDeploymentNameResponse(app_id=app.id if app else "")

    @rpc
    async def app_create(self, request: Message, _: Caller) -> Message:
        app = App(
            id=self._world.id("ap"),
            name=request.description,
            environment=request.environment_name,
            state=request.app_state,
            tags=dict(request.tags),
        )
        self._world.apps[app.id] = app
        url = f"https://modal.invalid/apps/{app.id}"
        return api_pb2.AppCreateResponse(app_id=app.id, app_page_url=url, app_logs_url=url)

    @rpc
    async def app_get_or_create(self, request: Message, caller: Caller) -> Message:
        app = self._world.app_named(request.app_name, request.environment_name)
        if app is None:
            if request.object_creation_type not in CREATES:
                raise GRPCError(Status.NOT_FOUND, f"App '{request.app_name}' not found")
            created = await self.app_create(
                api_pb2.AppCreateRequest(
                    description=request.app_name,
                    environment_name=request.environment_name,
                    app_state=api_pb2.APP_STATE_DEPLOYED,
                ),
                caller,
            )
            app = self._world.apps[created.app_id]
            self._world.names["app", app.environment, app.name] = app.id
        return api_pb2.AppGetOrCreateResponse(app_id=app.id)

    @rpc
    async def app_get_layout(self, request: Message, _: Caller) -> Message:
        app = held(self._world.apps, request.app_id)
        return api_pb2.AppGetLayoutResponse(app_layout=layout(self._world, app))

    @rpc
    async def app_publish(self, request: Message, _: Caller) -> Message:
        world, app = self._world, held(self._world.apps, request.app_id)
        definitions = sorted(dict(request.definition_ids).items())
        content = digest(repr(definitions), repr(sorted(request.tags.items())), request.name)
        changed = app.published != content.encode()
        if changed:
            app.published = content.encode()
            app.version += 1
            app.functions, app.classes = dict(request.function_ids), dict(request.class_ids)
            app.state, app.tags = request.app_state, dict(request.tags)
        if request.app_state == api_pb2.APP_STATE_DEPLOYED:
            app.name = request.name
            world.names["app", app.environment, app.name] = app.id
        now = time.time()
        world.deploys.append(Deploy(app.id, app.name, changed, now, dict(app.tags)))
        url = f"https://modal.invalid/apps/{app.id}"
        return api_pb2.AppPublishResponse(url=url, deployed_at=now if changed else 0.0)

    @rpc
    async def app_heartbeat(self, request: Message, _: Caller) -> Message:
        held(self._world.apps, request.app_id).last_seen = time.monotonic()
        return Empty()

    @rpc
    async def app_client_disconnect(self, request: Message, _: Caller) -> Message:
        app = held(self._world.apps, request.app_id)
        if app.state in {api_pb2.APP_STATE_EPHEMERAL, api_pb2.APP_STATE_INITIALIZING}:
            self._stop(app)
        return Empty()

    @rpc
    async def app_stop(self, request: Message, _: Caller) -> Message:
        self._stop(held(self._world.apps, request.app_id))
        return Empty()


def layout(world: World, app: App) -> Message:
    """Describe an app with everything that its functions depend on (else a container dies)."""
    result = api_pb2.AppLayout(function_ids=app.functions, class_ids=app.classes)
    needed: dict[str, Message] = {}
    for id in app.functions.values():
        function = world.functions[id]
        needed[id] = api_pb2.Object(object_id=id, function_handle_metadata=function.metadata)
        for ranked in function.data.ranked_functions:
            for dependency in ranked.function.object_dependencies:
                needed.setdefault(
                    dependency.object_id, api_pb2.Object(object_id=dependency.object_id)
                )
    for id in app.classes.values():
        metadata = world.class_methods.get(id)
        needed[id] = api_pb2.Object(object_id=id, class_handle_metadata=metadata)
    result.objects.extend(needed.values())
    return result


class Functions:
    """Rooms for `Function...` that describe functions; calls are elsewhere."""

    def __init__(self, world: World, faults: Faults, input_plane: Callable[[], str]) -> None:
        self._world = world
        self._faults = faults
        self._input_plane = input_plane

    @rpc
    async def function_precreate(self, request: Message, _: Caller) -> Message:
        id = request.existing_function_id or self._world.id("fu")
        metadata = api_pb2.FunctionHandleMetadata(
            function_name=request.function_name,
            function_type=request.function_type,
            function_schema=request.function_schema,
            app_id=request.app_id,
        )
        self._finish(metadata, request)
        return api_pb2.FunctionPrecreateResponse(function_id=id, handle_metadata=metadata)

    def _finish(self, metadata: Message, request: Message) -> None:
        for kind in ("supported_input_formats", "supported_output_formats"):
            getattr(metadata, kind)[:] = getattr(request, kind)
        for name, method in request.method_definitions.items():
            entry = metadata.method_handle_metadata[name]
            entry.function_name = method.function_name
            entry.function_type = method.function_type
            entry.is_method = True
            entry.use_method_name = name
        if self._input_plane():
            metadata.input_plane_url = self._input_plane()
            metadata.input_plane_region = "loopback"

    @rpc
    async def function_create(self, request: Message, _: Caller) -> Message:
        data = as_data(request)
        for ranked in data.ranked_functions:
            check_gpu(ranked.function.resources)
            self._faults.check_payment(ranked.function.resources)
        id = request.existing_function_id or self._world.id("fu")
        metadata = api_pb2.FunctionHandleMetadata(
            function_name=data.function_name,
            function_type=data.function_type,
            function_schema=data.function_schema,
            class_parameter_info=data.class_parameter_info,
            app_id=request.app_id,
            definition_id="de-" + fingerprint(data),
        )
        self._finish(metadata, data)
        self._world.functions[id] = Function(id, request.app_id, data, metadata)
        return api_pb2.FunctionCreateResponse(
            function_id=id,
            function=data.ranked_functions[0].function,
            function_data=data,
            handle_metadata=metadata,
        )

    @rpc
    async def class_create(self, request: Message, _: Caller) -> Message:
        id = request.existing_class_id or self._world.id("cs")
        metadata = api_pb2.ClassHandleMetadata(methods=request.methods)
        self._world.class_methods[id] = metadata
        return api_pb2.ClassCreateResponse(class_id=id, handle_metadata=metadata)

    @rpc
    async def function_get(self, request: Message, _: Caller) -> Message:
        world = self._world
        app = world.app_named(request.app_name, request.environment_name)
        if app is None:
            raise GRPCError(
                Status.NOT_FOUND,
                f"App '{request.app_name}' not found in environment '{request.environment_name}'",
            )
        id = app.functions.get(request.object_tag)
        if id is None:
            raise GRPCError(
                Status.NOT_FOUND, f"No function '{request.object_tag}' in app '{app.name}'"
            )
        function = world.functions[id]
        return api_pb2.FunctionGetResponse(
            function_id=id, handle_metadata=function.metadata, function=function.data
        )

    @rpc
    async def function_get_by_id(self, request: Message, _: Caller) -> Message:
        function = held(self._world.functions, request.function_id)
        return api_pb2.FunctionGetByIdResponse(
            function=function.data, handle_metadata=function.metadata
        )

    @rpc
    async def function_bind_params(self, request: Message, _: Caller) -> Message:
        base = held(self._world.functions, request.function_id)
        check_gpu(request.function_options.resources)
        self._faults.check_payment(request.function_options.resources)
        options = request.function_options.SerializeToString(deterministic=True)
        id = "fu-" + digest(base.id, options, request.serialized_params)
        metadata = api_pb2.FunctionHandleMetadata()
        metadata.CopyFrom(base.metadata)
        metadata.base_function_id = base.id
        self._world.functions[id] = Function(
            id=id,
            app_id=base.app_id,
            data=base.data,
            metadata=metadata,
            base=base.base or base,
            options=request.function_options,
            params=request.serialized_params,
        )
        return api_pb2.FunctionBindParamsResponse(bound_function_id=id, handle_metadata=metadata)


def as_data(request: Message) -> Message:
    """Bring both forms of `FunctionCreate` (one type; a ranked list) into the second."""
    if request.HasField("function_data"):
        return request.function_data
    function = request.function
    data = api_pb2.FunctionData()
    shared = {field.name for field in data.DESCRIPTOR.fields} - {"ranked_functions"}
    for field, value in function.ListFields():
        if field.name not in shared:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key, item in value.items():
                _set(getattr(data, field.name), key, item)
        elif isinstance(value, (str, bytes, int, float)):
            setattr(data, field.name, value)
        elif hasattr(value, "CopyFrom"):
            getattr(data, field.name).CopyFrom(value)
        else:
            getattr(data, field.name).extend(value)
    data.ranked_functions.add(rank=0, function=function)
    return data


def _set(mapping: Message, key: str, item: Message) -> None:
    if hasattr(item, "CopyFrom"):
        mapping[key].CopyFrom(item)
    else:
        mapping[key] = item


def fingerprint(data: Message) -> str:
    """Name a definition: the same for one that means the same."""
    copy = api_pb2.FunctionData()
    copy.CopyFrom(data)
    for ranked in copy.ranked_functions:
        ranked.function.mount_ids[:] = sorted(ranked.function.mount_ids)  # the client sends a set
    return digest(copy.SerializeToString(deterministic=True))


def definitions(function: Function, world: World) -> list[Message]:
    """Return what containers of a function are made from, by rank: its options applied."""
    base = world.functions[function.base.id] if function.base else function
    result = []
    for ranked in sorted(base.data.ranked_functions, key=lambda each: int(each.rank)):
        definition = api_pb2.Function()
        definition.CopyFrom(ranked.function)
        if function.options is not None:
            apply_options(definition, function.options)
        result.append(definition)
    return result


def apply_options(definition: Message, options: Message) -> None:
    """Put the options of `with_options` over a definition."""
    if options.replace_secret_ids:
        definition.secret_ids[:] = options.secret_ids
    if options.replace_volume_mounts:
        del definition.volume_mounts[:]
        definition.volume_mounts.extend(options.volume_mounts)
    for name in ("concurrency_limit", "timeout_secs", "task_idle_timeout_secs"):
        if options.HasField(name):
            setattr(definition, name, getattr(options, name))
    settings = definition.autoscaler_settings
    if options.HasField("concurrency_limit"):
        settings.max_containers = options.concurrency_limit
    if options.HasField("task_idle_timeout_secs"):
        settings.scaledown_window = options.task_idle_timeout_secs
    if options.HasField("resources"):
        resources = definition.resources
        if options.resources.HasField("gpu_config"):
            resources.gpu_config.CopyFrom(options.resources.gpu_config)
        resources.memory_mb = options.resources.memory_mb or resources.memory_mb
        resources.milli_cpu = options.resources.milli_cpu or resources.milli_cpu
