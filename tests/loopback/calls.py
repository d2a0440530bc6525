"""Function calls: inputs in, chunks and outputs out, cancellation; and what containers ask."""

import time
from collections.abc import AsyncIterator

from google.protobuf.empty_pb2 import Empty
from modal_proto import api_pb2

from .faults import Faults
from .objects import held
from .scheduling import Scheduler
from .state import Call, Input, World
from .wire import Caller, Message, rpc

STREAM_SECONDS = 55.0  # that the service holds a stream or a poll open


class Calls:
    """Rooms for a client that calls a function."""

    def __init__(self, world: World, scheduler: Scheduler, faults: Faults) -> None:
        self._world = world
        self._scheduler = scheduler
        self._faults = faults

    def open(self, function_id: str, invocation_type: int, *, plane: bool = False) -> Call:
        """Begin a call without inputs."""
        function = held(self._world.functions, function_id)
        call = Call(self._world.id("fc"), function, invocation_type, from_input_plane=plane)
        self._world.calls[call.id] = call
        return call

    def add(self, call: Call, item: Message) -> Input:
        """Give a call an input, and let it be run."""
        entry = Input(f"in-{self._world.id('x')[2:]}:{item.idx}", call, item.idx, item.input)
        self._world.inputs[entry.id] = entry
        call.inputs.append(entry)
        self._scheduler.submit(entry)
        return entry

    @rpc
    async def function_map(self, request: Message, _: Caller) -> Message:
        call = self.open(request.function_id, request.function_call_invocation_type)
        inputs = [self.add(call, item) for item in request.pipelined_inputs]
        definition = call.function.data.ranked_functions[0].function
        return api_pb2.FunctionMapResponse(
            function_call_id=call.id,
            pipelined_inputs=[_receipt(entry) for entry in inputs],
            retry_policy=definition.retry_policy,
            function_call_jwt=call.id,
            sync_client_retries_enabled=True,
            max_inputs_outstanding=1000,
        )

    @rpc
    async def function_put_inputs(self, request: Message, _: Caller) -> Message:
        call = held(self._world.calls, request.function_call_id)
        inputs = [self.add(call, item) for item in request.inputs]
        return api_pb2.FunctionPutInputsResponse(inputs=[_receipt(entry) for entry in inputs])

    @rpc
    async def function_retry_inputs(self, request: Message, _: Caller) -> Message:
        jwts = []
        for item in request.inputs:
            entry = held(self._world.inputs, item.input_jwt.partition("/")[0])
            self.retry(entry)
            jwts.append(_receipt(entry).input_jwt)
        return api_pb2.FunctionRetryInputsResponse(input_jwts=jwts)

    def retry(self, entry: Input) -> None:
        """Run an input again because its client asks for it."""
        entry.output = None
        entry.timed_out = False
        entry.attempt += 1
        entry.retry_count += 1
        self._scheduler.submit(entry)

    @rpc
    async def function_get_outputs(self, request: Message, _: Caller) -> Message:
        call = held(self._world.calls, request.function_call_id)
        deadline = time.monotonic() + request.timeout
        begin = int(request.last_entry_id.partition("-")[0] or 0)
        while True:
            found = [
                (number, output)
                for number, output in enumerate(call.outputs[begin:], begin + 1)
                if _wanted(request, output)
            ][: request.max_values or 49]
            if found or time.monotonic() >= deadline:
                return api_pb2.FunctionGetOutputsResponse(
                    outputs=[output for _, output in found],
                    idxs=[output.idx for _, output in found],
                    last_entry_id=f"{found[-1][0]}-0" if found else request.last_entry_id,
                    num_unfinished_inputs=len(call.unfinished),
                )
            await call.changed.wait(deadline - time.monotonic())

    @rpc
    async def function_call_cancel(self, request: Message, _: Caller) -> Message:
        call = held(self._world.calls, request.function_call_id)
        for entry in call.unfinished:
            self._scheduler.cancel(entry, request.terminate_containers)
        return Empty()

    @rpc
    async def function_call_from_id(self, request: Message, _: Caller) -> Message:
        call = held(self._world.calls, request.function_call_id)
        function = call.function
        return api_pb2.FunctionCallFromIdResponse(
            function_call_id=call.id,
            num_inputs=len(call.inputs),
            metadata=api_pb2.FunctionCallHandleMetadata(
                app_id=function.app_id, function_id=function.id
            ),
        )

    @rpc
    async def function_call_get_data_out(
        self, request: Message, _: Caller
    ) -> AsyncIterator[Message]:
        call = self._streamed(request)
        deadline = time.monotonic() + STREAM_SECONDS
        position = 0
        while time.monotonic() < deadline:
            while position < len(call.chunks) and not self._deaf(request, call):
                chunk = call.chunks[position]
                position += 1
                if chunk.index > request.last_index:
                    yield chunk
                    self._faults.cut(chunk.index)
            await call.changed.wait(deadline - time.monotonic())

    def _deaf(self, request: Message, call: Call) -> bool:
        tokens = [entry.token for entry in call.inputs]
        return self._faults.deaf and request.attempt_token not in ["", *tokens]

    def _streamed(self, request: Message) -> Call:
        if request.attempt_token:
            id = request.attempt_token.removeprefix("at-").rpartition("-")[0]
            return held(self._world.inputs, id).call
        return held(self._world.calls, request.function_call_id)


def _receipt(entry: Input) -> Message:
    return api_pb2.FunctionPutInputsResponseItem(
        idx=entry.idx, input_id=entry.id, input_jwt=f"{entry.id}/{entry.attempt}"
    )


def _wanted(request: Message, output: Message) -> bool:
    if request.input_jwts and f"{output.input_id}/{output.retry_count}" not in request.input_jwts:
        return False
    if request.HasField("start_idx") and output.idx < request.start_idx:
        return False
    return not request.HasField("end_idx") or output.idx <= request.end_idx


class Worker:
    """Rooms for the containers."""

    def __init__(self, world: World, scheduler: Scheduler, faults: Faults) -> None:
        self._world = world
        self._scheduler = scheduler
        self._faults = faults

    @rpc
    async def container_hello(self, _request: Message, _: Caller) -> Message:
        return Empty()

    @rpc
    async def container_heartbeat(self, _request: Message, caller: Caller) -> Message:
        assert caller.container is not None
        input_id = await caller.container.cancelled.get()
        event = api_pb2.CancelInputEvent(input_ids=[input_id])
        return api_pb2.ContainerHeartbeatResponse(cancel_input_event=event)

    @rpc
    async def function_get_inputs(self, _request: Message, caller: Caller) -> Message:
        assert caller.container is not None
        response = await self._scheduler.next_input(caller.container)
        await self._scheduler.strike(caller.container, 0)
        return response

    @rpc
    async def function_call_put_data_out(self, request: Message, caller: Caller) -> Message:
        container = caller.container
        assert container is not None
        entry = container.current
        if entry is None:  # its input went to another container
            return Empty()
        for sent in request.data_chunks:
            chunk = self._faults.tamper_chunk(sent) if self._faults.tamper_chunk else sent
            copies = 2 if chunk.index in self._faults.doubled else 1
            if chunk.index in self._faults.dropped:
                copies = 0
            entry.call.chunks.extend([chunk] * copies)
            container.frames += 1
            entry.call.changed.notify()
            await self._scheduler.strike(container, chunk.index)
        return Empty()

    async def claimed(self, caller: Caller) -> None:
        """Strike a container that has claimed its input, if one is to be struck there."""
        assert caller.container is not None
        await self._scheduler.strike(caller.container, "claim")

    @rpc
    async def function_put_outputs(self, request: Message, caller: Caller) -> Message:
        for sent in request.outputs:
            item = self._faults.tamper_output(sent) if self._faults.tamper_output else sent
            entry = held(self._world.inputs, item.input_id)
            assert caller.container is not None
            self._scheduler.put_output(caller.container, entry, item)
        return Empty()

    @rpc
    async def task_result(self, request: Message, caller: Caller) -> Message:
        assert caller.container is not None
        caller.container.result = request.result
        return Empty()

    @rpc
    async def container_stop(self, request: Message, caller: Caller) -> Message:
        wanted = request.task_id
        for container in self._scheduler.containers:
            if container.id == wanted and container.exit is None:
                if request.graceful and container is caller.container:
                    self._scheduler.retire(container)
                else:
                    container.kill()
        return api_pb2.ContainerStopResponse()
