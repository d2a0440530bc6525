"""Who runs what: a pool of containers for each function, one input in a container at a time."""

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from modal_proto import api_pb2

from .apps import definitions, layout, stopped
from .containers import Container, Launcher
from .faults import Faults, When
from .images import Images
from .state import App, Function, Input, World
from .wire import Jobs, Message

Result = api_pb2.GenericResult
MOST_CONTAINERS = 8  # of a function that sets no limit itself: this is one machine
SCALEDOWN = 60.0


def _farewell() -> float:
    """Let containers that are measured write down what they did; others need no time."""
    return 10.0 if any(name.startswith("COVERAGE_PROCESS") for name in os.environ) else 0.0


@dataclass
class Limits:
    """Time limits, with factors so that a test need not wait for them; seconds."""

    crashes_of_input: int = 8  # the real service goes on without end
    failed_starts: int = 3
    timeout_scale: float = 1.0  # of a function's own time-out
    interrupt_after: float = 30.0  # from the time-out
    kill_after: float = 60.0
    preempt_grace: float = 30.0  # from SIGINT to SIGKILL
    scaledown_scale: float = 1.0
    client_gone: float = 60.0  # an ephemeral app without a heartbeat
    farewell: float = field(default_factory=_farewell)  # that idle ones have at the very end


@dataclass
class Pool:
    """The containers of one function with one set of options."""

    function: Function
    pending: deque[Input] = field(default_factory=deque)
    containers: list[Container] = field(default_factory=list)
    failed_starts: int = 0


class Scheduler:
    """Hands inputs to containers, starts them where some lack, and ends them."""

    def __init__(
        self, world: World, images: Images, faults: Faults, limits: Limits, jobs: Jobs
    ) -> None:
        self._world = world
        self._images = images
        self._faults = faults
        self.limits = limits
        self.pools: dict[str, Pool] = {}
        self.containers: list[Container] = []
        self.plane = False
        self.launcher: Launcher | None = None
        self._jobs = jobs
        self._closing = False

    # ------------------------------------------------------------ inputs

    def submit(self, entry: Input) -> None:
        """Queue an input for its pool."""
        function = entry.call.function
        app = self._world.apps[function.app_id]
        pool = self.pools.setdefault(function.id, Pool(function))
        pool.function = function
        if not app.live:
            self.finish(entry, Result(status=Result.GENERIC_STATUS_TERMINATED))
            return
        if (failure := self._faults.failure()) is not None:
            self.finish(entry, failure)
            return
        pool.pending.append(entry)
        self._pump(pool)

    def finish(self, entry: Input, result: Message, item: Message | None = None) -> None:
        """Give an input its output, unless it has one."""
        if entry.output is not None:
            return
        if entry.timed_out:
            name = entry.call.function.name
            timeout = Result(
                status=Result.GENERIC_STATUS_TIMEOUT, exception=f"{name} hit its time-out"
            )
            result, item = timeout, None
        output = api_pb2.FunctionGetOutputsItem(
            result=result,
            idx=entry.idx,
            input_id=entry.id,
            task_id=entry.deliveries[-1] if entry.deliveries else "",
            output_created_at=time.time(),
            retry_count=entry.attempt,
        )
        if item is not None:
            output.data_format = item.data_format
            output.input_started_at = item.input_started_at
        entry.output = output
        entry.call.outputs.append(output)
        entry.call.changed.notify()
        self._release(entry)

    def _release(self, entry: Input) -> None:
        pool = self.pools.get(entry.call.function.id)
        while pool is not None and entry in pool.pending:
            pool.pending.remove(entry)

    def put_output(self, container: Container, entry: Input, item: Message) -> None:
        """Take a container's output of an input, if it is that container's to run."""
        if container.current is not entry:
            return
        container.current = None
        container.idle_since = time.monotonic()
        self.finish(entry, item.result, item)
        self._later(self._scaledown(container), self._retire_if_idle, container)

    def _holders(self, entry: Input) -> list[Container]:
        return [each for each in self._alive() if each.current is entry]

    def cancel(self, entry: Input, terminate: bool) -> None:
        """End an input as the client asks: through its container if one has it."""
        holders = self._holders(entry)
        if terminate or not holders:
            self.finish(entry, Result(status=Result.GENERIC_STATUS_TERMINATED))
        for container in holders:
            if terminate:
                container.kill()
            else:
                container.cancelled.put_nowait(entry.id)

    # ------------------------------------------------------------ containers ask

    async def next_input(self, container: Container) -> Message:
        """Answer a container that has room; wait until there is something, or its end."""
        container.asked = True
        pool = self.pools[container.function.id]
        pool.failed_starts = 0
        if container.draining:
            return _kill_switch()
        future = container.waiting = asyncio.get_running_loop().create_future()
        self._pump(pool)
        self._later(self._scaledown(container), self._retire_if_idle, container)
        return await future

    def _deliver(self, entry: Input, container: Container) -> None:
        assert container.waiting is not None
        container.current = entry
        entry.deliveries.append(container.id)
        container.inputs.append(entry.id)
        item = api_pb2.FunctionGetInputsItem(
            input_id=entry.id,
            input=entry.item,
            function_call_id=entry.call.id,
            function_call_invocation_type=entry.call.invocation_type,
            retry_count=entry.retry_count,
            function_map_idx=entry.idx,
            attempt_token=entry.token if entry.call.from_input_plane else "",
            from_input_plane=entry.call.from_input_plane,
        )
        container.waiting.set_result(api_pb2.FunctionGetInputsResponse(inputs=[item]))
        container.waiting = None
        seconds = container.definition.timeout_secs * self.limits.timeout_scale
        if seconds:
            self._later(seconds, self._time_out, container, entry)
        if self._faults.deliver_twice():
            entry.retry_count += 1
            self.pools[container.function.id].pending.appendleft(entry)

    # ------------------------------------------------------------ the pump

    def _pump(self, pool: Pool) -> None:
        for container in pool.containers:
            if pool.pending and container.free and container.waiting is not None:
                self._deliver(pool.pending.popleft(), container)
        free = sum(container.free for container in pool.containers)
        wanted = len(pool.pending) - free
        for _ in range(wanted):
            most = definitions(pool.function, self._world)[0].autoscaler_settings.max_containers
            running = sum(not container.draining for container in pool.containers)
            if self._closing or running >= (most or MOST_CONTAINERS):
                return
            self._start(pool)

    def _start(self, pool: Pool) -> None:
        ranked = definitions(pool.function, self._world)
        container = Container(
            id=self._world.id("ta"),
            function=pool.function,
            definition=self._faults.first_available(ranked),
            root=self._world.folder / "containers" / str(len(self.containers)),
        )
        pool.containers.append(container)
        self.containers.append(container)
        self._jobs.spawn(self._live(pool, container))

    async def _live(self, pool: Pool, container: Container) -> None:
        await self._faults.schedule(
            definitions(pool.function, self._world), lambda: container.draining
        )
        container.definition = self._faults.first_available(definitions(pool.function, self._world))
        app = self._world.apps[container.function.app_id]
        if not container.draining and app.live and pool.pending:  # else nobody needs it any more
            assert self.launcher is not None
            built = self._images.built(container.definition.image_id)
            described = layout(self._world, app)
            await self.launcher.run(container, built, described, self.plane)
        self._gone(pool, container)

    def _gone(self, pool: Pool, container: Container) -> None:
        if container.exit is None:
            container.exit = 0
            container.ended.set()
        pool.containers.remove(container)
        self._note_end(self._world.apps[container.function.app_id])
        entry, container.current = container.current, None
        if entry is not None and entry.output is None and not self._holders(entry):
            self._lost(pool, entry, container)
        elif not container.asked and not container.draining:
            self._failed_start(pool, container)
        self._pump(pool)

    def _lost(self, pool: Pool, entry: Input, container: Container) -> None:
        entry.crashes += 1
        app = self._world.apps[pool.function.app_id]
        if entry.timed_out:
            self.finish(entry, Result(status=Result.GENERIC_STATUS_TIMEOUT))
        elif not app.live:
            self.finish(entry, Result(status=Result.GENERIC_STATUS_TERMINATED))
        elif entry.crashes >= self.limits.crashes_of_input:
            text = f"container {container.id} exited with {container.exit}, again and again"
            self.finish(
                entry, Result(status=Result.GENERIC_STATUS_INTERNAL_FAILURE, exception=text)
            )
        else:
            entry.retry_count += 1
            self._release(entry)
            pool.pending.appendleft(entry)

    def _failed_start(self, pool: Pool, container: Container) -> None:
        pool.failed_starts += 1
        if pool.failed_starts < self.limits.failed_starts:
            return
        text = f"container {container.id} exited with {container.exit} before it took an input"
        result = container.result or Result(
            status=Result.GENERIC_STATUS_INTERNAL_FAILURE, exception=text
        )
        for entry in list(pool.pending):
            self.finish(entry, result)
        pool.failed_starts = 0

    # ------------------------------------------------------------ ends

    def _scaledown(self, container: Container) -> float:
        window = container.definition.autoscaler_settings.scaledown_window
        return float(window or SCALEDOWN) * self.limits.scaledown_scale

    def _retire_if_idle(self, container: Container) -> None:
        if container.waiting is None or container.waiting.done():
            return
        window = self._scaledown(container)
        idle = time.monotonic() - container.idle_since
        if idle < window - 0.001:
            return
        self.retire(container)

    def retire(self, container: Container) -> None:
        """Let a container end by itself, once it has nothing to do."""
        container.draining = True
        if container.waiting is not None and not container.waiting.done():
            container.waiting.set_result(_kill_switch())

    def _time_out(self, container: Container, entry: Input) -> None:
        if container.current is not entry:
            return
        entry.timed_out = True
        container.signal(signal.SIGUSR1)

        def still(act: Callable[[], None]) -> None:
            if container.current is entry:
                act()

        limits = self.limits
        interrupt = lambda: container.signal(signal.SIGINT)  # noqa: E731 -- two of a kind
        self._later(limits.interrupt_after, still, interrupt)
        self._later(limits.kill_after, still, container.kill)

    def preempt(self, container: Container) -> None:
        """Take the machine away: SIGINT, then SIGKILL; its input goes to another container."""
        container.draining = True
        container.signal(signal.SIGINT)
        self._later(self.limits.preempt_grace, container.kill)

    async def strike(self, container: Container, sent: When) -> None:
        """Do to a container what the faults have in store for it; no answer reaches a lost one."""
        if container.current is None or container.draining:
            return
        blow = self._faults.strike(sent)
        if blow == "preempt":
            self.preempt(container)
        elif blow == "lose":
            container.kill()
            await container.ended.wait()

    def stop_app(self, app: App) -> None:
        """End an app with all that runs in it."""
        stopped(self._world, app)
        for pool in self.pools.values():
            if pool.function.app_id == app.id:
                self._stop_pool(pool)
        self._note_end(app)

    def _note_end(self, app: App) -> None:
        running = any(each.function.app_id == app.id for each in self._alive())
        app.done = not app.live and not running
        app.changed.notify()

    def _alive(self) -> list[Container]:
        return [each for each in self.containers if each.exit is None]

    def _stop_pool(self, pool: Pool) -> None:
        inputs = [*pool.pending, *(each.current for each in pool.containers if each.current)]
        for container in pool.containers:
            container.kill()
        for entry in inputs:
            self.finish(entry, Result(status=Result.GENERIC_STATUS_TERMINATED))

    def end_abandoned(self) -> None:
        """Stop the ephemeral apps whose client has fallen silent."""
        horizon = time.monotonic() - self.limits.client_gone
        for app in list(self._world.apps.values()):
            ephemeral = app.state in {
                api_pb2.APP_STATE_EPHEMERAL,
                api_pb2.APP_STATE_INITIALIZING,
            }
            if ephemeral and app.last_seen < horizon:
                self.stop_app(app)

    async def close(self) -> None:
        """End everything, and wait until nothing is left."""
        self._closing = True
        self._faults.release()
        await self._say_farewell()
        for pool in self.pools.values():
            self._stop_pool(pool)
        await self._jobs.finished()

    async def _say_farewell(self) -> None:
        idle = [each for each in self._alive() if each.asked and each.current is None]
        if not self.limits.farewell or not idle:
            return
        for container in idle:
            self.retire(container)
        waits = [asyncio.ensure_future(each.ended.wait()) for each in idle]
        _, late = await asyncio.wait(waits, timeout=self.limits.farewell)
        for wait in late:
            wait.cancel()

    def _later(self, seconds: float, act: Callable[..., None], *args: object) -> None:
        asyncio.get_running_loop().call_later(seconds, act, *args)


def _kill_switch() -> Message:
    return api_pb2.FunctionGetInputsResponse(
        inputs=[api_pb2.FunctionGetInputsItem(kill_switch=True)]
    )
