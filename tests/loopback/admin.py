"""What a person asks about: lists of apps and containers, logs, tags, prices."""

import time
from collections.abc import AsyncIterator, Callable, Iterable

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2

from .containers import Container
from .objects import held
from .state import App, Call, Function, World
from .wire import Caller, Message, rpc

LONGEST_RANGE = 7 * 86400 + 1  # seconds of what is counted at once; as the service has it
OLDEST = 30 * 86400  # seconds back from now
Result = api_pb2.GenericResult
OVER = {
    Result.GENERIC_STATUS_SUCCESS: "succeeded_inputs",
    Result.GENERIC_STATUS_TIMEOUT: "timeout_inputs",
    Result.GENERIC_STATUS_TERMINATED: "cancelled_inputs",
}


def lifecycle(app: App) -> Message:
    """Describe in what state an app is."""
    return api_pb2.AppLifecycle(
        app_state=app.state,
        created_at=app.created_at,
        deployed_at=app.created_at if app.version else 0.0,
        version=app.version,
        stopped_at=app.stopped_at,
    )


class Admin:
    """Rooms for the lists."""

    def __init__(self, world: World, containers: Callable[[], list[Container]]) -> None:
        self._world = world
        self._containers = containers
        self.rates: dict[str, str] = {}

    def _running(self, app_id: str) -> list[Container]:
        return [
            each
            for each in self._containers()
            if each.exit is None and (not app_id or each.function.app_id == app_id)
        ]

    def _metadata(self, app: App) -> Message:
        return api_pb2.AppHandleMetadata(
            description=app.name,
            app_id=app.id,
            environment_name=app.environment,
            lifecycle=lifecycle(app),
            functions=app.functions,
        )

    def _described(self, app: App) -> dict[str, Message]:
        """Say more of an app to clients that can take it."""
        newer = "metadata" in api_pb2.AppListResponse.AppListItem.DESCRIPTOR.fields_by_name
        return {"metadata": self._metadata(app)} if newer else {}

    @rpc
    async def app_list(self, request: Message, _: Caller) -> Message:
        items = [
            api_pb2.AppListResponse.AppListItem(
                app_id=app.id,
                description=app.name,
                name=app.name if app.state == api_pb2.APP_STATE_DEPLOYED else "",
                state=app.state,
                created_at=app.created_at,
                stopped_at=app.stopped_at,
                n_running_tasks=len(self._running(app.id)),
                **self._described(app),
            )
            for app in self._world.apps.values()
            if request.environment_name in {"", app.environment}
        ]
        return api_pb2.AppListResponse(apps=items)

    @rpc
    async def app_get_lifecycle(self, request: Message, _: Caller) -> Message:
        app = held(self._world.apps, request.app_id)
        return api_pb2.AppGetLifecycleResponse(lifecycle=lifecycle(app))

    @rpc
    async def app_get_info(self, request: Message, _: Caller) -> Message:
        app = held(self._world.apps, request.app_id)
        return api_pb2.AppGetInfoResponse(info=self._metadata(app))

    @rpc
    async def app_set_tags(self, request: Message, _: Caller) -> Message:
        held(self._world.apps, request.app_id).tags = dict(request.tags)
        return Empty()

    @rpc
    async def app_get_tags(self, request: Message, _: Caller) -> Message:
        return api_pb2.AppGetTagsResponse(tags=held(self._world.apps, request.app_id).tags)

    @rpc
    async def task_list(self, request: Message, _: Caller) -> Message:
        tasks = [
            api_pb2.TaskStats(
                task_id=each.id,
                app_id=each.function.app_id,
                app_description=self._world.apps[each.function.app_id].name,
                started_at=each.started_at,
                enqueued_at=each.started_at,
            )
            for each in self._running(request.app_id)
        ]
        return api_pb2.TaskListResponse(tasks=tasks)

    @rpc
    async def task_get_info(self, request: Message, _: Caller) -> Message:
        by_id = {each.id: each for each in self._containers()}
        container = held(by_id, request.task_id)
        info = api_pb2.TaskInfo(
            id=container.id,
            started_at=container.started_at,
            enqueued_at=container.started_at,
            gpu_config=container.definition.resources.gpu_config,
        )
        return api_pb2.TaskGetInfoResponse(app_id=container.function.app_id, info=info)

    @rpc
    async def environment_list(self, _request: Message, _: Caller) -> Message:
        item = api_pb2.EnvironmentListItem(name="main", is_default=True, default=True)
        return api_pb2.EnvironmentListResponse(items=[item])

    @rpc
    async def workspace_name_lookup(self, _request: Message, _: Caller) -> Message:
        return api_pb2.WorkspaceNameLookupResponse(workspace_name="loopback", username="loopback")

    @rpc
    async def workspace_billing_rates(self, _request: Message, _: Caller) -> Message:
        lines = "\n".join(f"{name} {value}" for name, value in self.rates.items())
        return api_pb2.WorkspaceBillingRatesResponse(rates=self.rates, formatted=lines)

    @rpc
    async def function_get_current_stats(self, request: Message, _: Caller) -> Message:
        function = held(self._world.functions, request.function_id)
        running = [each for each in self._containers() if each.function.id == function.id]
        busy = sum(each.current is not None for each in running)
        unfinished = sum(
            len(call.unfinished)
            for call in self._world.calls.values()
            if call.function.id == function.id
        )
        return api_pb2.FunctionStats(
            backlog=unfinished - busy,
            num_total_tasks=sum(each.exit is None and each.pid is not None for each in running),
            num_running_inputs=busy,
        )

    @rpc
    async def function_get_time_range_stats(self, request: Message, _: Caller) -> Message:
        base = held(self._world.functions, request.function_id)
        since, until = request.since.seconds, request.until.seconds + 1
        if not 0 < until - since <= LONGEST_RANGE or since < time.time() - OLDEST:
            raise GRPCError(Status.INVALID_ARGUMENT, "at most 7 days, and the last 30 of them")

        def meant(function: Function) -> bool:
            """Say whether a function is the one, or with a rollup one that was made from it."""
            of = function.base.id if function.base is not None and request.rollup else function.id
            return of == base.id

        calls = [
            call
            for call in self._world.calls.values()
            if meant(call.function) and since <= call.created_at < until
        ]
        started = [
            each
            for each in self._containers()
            if meant(each.function) and since <= each.started_at < until
        ]
        outputs = [output.result.status for call in calls for output in call.outputs]
        good = sum(status == Result.GENERIC_STATUS_SUCCESS for status in outputs)
        late = sum(status == Result.GENERIC_STATUS_TIMEOUT for status in outputs)
        return api_pb2.FunctionGetTimeRangeStatsResponse(
            since=request.since,
            until=request.until,
            input_success_count=good,
            input_timeout_count=late,
            input_failure_count=len(outputs) - good - late,
            input_running_at_end_count=sum(len(call.unfinished) for call in calls),
            container_started_count=len(started),
        )

    @rpc
    async def function_call_get_info(self, request: Message, _: Caller) -> Message:
        call = held(self._world.calls, request.function_call_id)
        return api_pb2.FunctionCallGetInfoResponse(info=_describe(call))


def _describe(call: Call) -> Message:
    info = api_pb2.FunctionCallInfo(
        function_call_id=call.id, created_at=call.created_at, total_inputs=len(call.inputs)
    )
    info.pending_inputs.total = len(call.unfinished)
    for output in call.outputs:
        getattr(info, OVER.get(output.result.status, "failed_inputs")).total += 1
    return info


def add_log(app: App, container: Container, text: str, descriptor: int) -> None:
    """Keep what a container printed for those who ask later, or listen."""
    current = container.current
    now = time.time()
    item = api_pb2.TaskLogs(
        data=text,
        file_descriptor=descriptor,
        timestamp=now,
        timestamp_ns=int(now * 1e9),
        function_call_id=current.call.id if current else "",
        input_id=current.id if current else "",
        container_id=container.id,
    )
    batch = api_pb2.TaskLogsBatch(
        task_id=container.id,
        items=[item],
        entry_id=f"{len(app.logs) + 1}-0",
        function_id=container.function.id,
        input_id=item.input_id,
    )
    app.logs.append(batch)
    app.changed.notify()


class Logs:
    """Rooms for the logs of apps."""

    def __init__(self, world: World) -> None:
        self._world = world

    @rpc
    async def app_get_logs(self, request: Message, _: Caller) -> AsyncIterator[Message]:
        app = self._logged(request)
        deadline = time.monotonic() + (request.timeout or 55.0)
        position = int(request.last_entry_id.partition("-")[0] or 0)
        while time.monotonic() < deadline:
            done = app.done
            while position < len(app.logs):
                batch = app.logs[position]
                position += 1
                if list(_fitting(request, [batch])):
                    yield batch
            if done:
                yield api_pb2.TaskLogsBatch(app_done=True, entry_id=f"{position}-0")
                return
            await app.changed.wait(deadline - time.monotonic())

    def _logged(self, request: Message) -> App:
        if request.app_id:
            return held(self._world.apps, request.app_id)
        if request.function_id:
            function = held(self._world.functions, request.function_id)
            return self._world.apps[function.app_id]
        raise GRPCError(Status.INVALID_ARGUMENT, "logs of what?")

    @rpc
    async def app_fetch_logs(self, request: Message, _: Caller) -> Message:
        app = held(self._world.apps, request.app_id)
        found = list(_fitting(request, app.logs))[-(request.limit or 1000) :]
        return api_pb2.AppFetchLogsResponse(batches=found)

    @rpc
    async def app_count_logs(self, request: Message, _: Caller) -> Message:
        app = held(self._world.apps, request.app_id)
        seconds = request.bucket_secs or 1
        response = api_pb2.AppCountLogsResponse(app_id=app.id)
        counts: dict[int, int] = {}
        for batch in _fitting(request, app.logs):
            begin = int(batch.items[0].timestamp) // seconds * seconds
            counts[begin] = counts.get(begin, 0) + 1
        for begin, count in sorted(counts.items()):
            bucket = response.buckets.add(stdout_logs=count)
            bucket.bucket_start_at.FromSeconds(begin)
        return response


def _fitting(request: Message, batches: Iterable[Message]) -> Iterable[Message]:
    since = request.since.ToNanoseconds() if hasattr(request, "since") else 0
    until = request.until.ToNanoseconds() if hasattr(request, "until") else 0
    for batch in batches:
        item = batch.items[0]
        wanted = (
            request.function_id in {"", batch.function_id}
            and request.task_id in {"", batch.task_id}
            and request.function_call_id in {"", item.function_call_id}
            and request.search_text in item.data
            and item.timestamp_ns >= since
            and (not until or item.timestamp_ns < until)
        )
        if wanted:
            yield batch
