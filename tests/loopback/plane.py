"""The input plane: the same calls, by attempt tokens, where the service asks for it."""

import base64
import json
import time

from modal_proto import api_pb2

from .calls import Calls
from .objects import held
from .state import Input, World
from .wire import Caller, Message, rpc

HOUR = 3600.0


class InputPlane:
    """Rooms for `AuthTokenGet`, `Attempt...` and `Map...`."""

    def __init__(self, world: World, calls: Calls) -> None:
        self._world = world
        self._calls = calls

    @rpc
    async def auth_token_get(self, _request: Message, _: Caller) -> Message:
        parts = ({"alg": "none", "typ": "JWT"}, {"exp": int(time.time() + HOUR)})
        encoded = [
            base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
            for part in parts
        ]
        return api_pb2.AuthTokenGetResponse(token=".".join([*encoded, "loopback"]))

    @rpc
    async def attempt_start(self, request: Message, _: Caller) -> Message:
        kind = api_pb2.FUNCTION_CALL_INVOCATION_TYPE_SYNC
        call = self._calls.open(request.function_id, kind, plane=True)
        entry = self._calls.add(call, request.input)
        definition = call.function.data.ranked_functions[0].function
        return api_pb2.AttemptStartResponse(
            attempt_token=entry.token, retry_policy=definition.retry_policy
        )

    @rpc
    async def attempt_await(self, request: Message, _: Caller) -> Message:
        entry = self._attempt(request.attempt_token)
        deadline = time.monotonic() + request.timeout_secs
        while entry.output is None and time.monotonic() < deadline:
            await entry.call.changed.wait(deadline - time.monotonic())
        return api_pb2.AttemptAwaitResponse(output=entry.output)

    @rpc
    async def attempt_retry(self, request: Message, _: Caller) -> Message:
        entry = self._attempt(request.attempt_token)
        self._calls.retry(entry)
        return api_pb2.AttemptRetryResponse(attempt_token=entry.token)

    def _attempt(self, token: str) -> Input:
        return held(self._world.inputs, token.removeprefix("at-").rpartition("-")[0])

    @rpc
    async def map_start_or_continue(self, request: Message, _: Caller) -> Message:
        if known := request.map_token or request.function_call_id:
            call = held(self._world.calls, known)
        else:
            kind = api_pb2.FUNCTION_CALL_INVOCATION_TYPE_SYNC
            call = self._calls.open(request.function_id, kind, plane=True)
        tokens = []
        for item in request.items:
            if item.attempt_token:
                entry = self._attempt(item.attempt_token)
                self._calls.retry(entry)
            else:
                entry = self._calls.add(call, item.input)
            tokens.append(entry.token)
        definition = call.function.data.ranked_functions[0].function
        return api_pb2.MapStartOrContinueResponse(
            map_token=call.id,
            function_call_id=call.id,
            function_id=call.function.id,
            max_inputs_outstanding=1000,
            attempt_tokens=tokens,
            retry_policy=definition.retry_policy,
        )

    @rpc
    async def map_await(self, request: Message, _: Caller) -> Message:
        call = held(self._world.calls, request.map_token or request.function_call_id)
        deadline = time.monotonic() + request.timeout
        begin = int(request.last_entry_id.partition("-")[0] or 0)
        while len(call.outputs) <= begin and time.monotonic() < deadline:
            await call.changed.wait(deadline - time.monotonic())
        end = len(call.outputs)
        return api_pb2.MapAwaitResponse(outputs=call.outputs[begin:end], last_entry_id=f"{end}-0")

    @rpc
    async def map_check_inputs(self, request: Message, _: Caller) -> Message:
        return api_pb2.MapCheckInputsResponse(lost=[False] * len(request.attempt_tokens))
