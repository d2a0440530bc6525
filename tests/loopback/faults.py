"""What can go wrong on purpose. Tests set it; the other rooms ask here."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from grpclib import GRPCError, Status
from modal_proto import api_pb2

from .wire import Caller, Message, Signal

Blow = Literal["lose", "preempt"]
When = int | Literal["claim"]
"""After so many chunks, or once an input is claimed."""


@dataclass
class Refusal:
    """Answer an RPC with an error, `times` times (None: always)."""

    method: str
    status: Status
    message: str
    times: int | None = 1


@dataclass
class Strike:
    """Hit a container after it has sent so many chunks in its current input, or has claimed it."""

    blow: Blow
    after: When
    times: int = 1


@dataclass
class Faults:
    """All of them; what is set holds until it is unset or used up. Safe from any thread."""

    token: tuple[str, str] = ("ak-loopback", "as-loopback")
    delay: float = 0.0  # of each request of a client, seconds
    slow: dict[str, float] = field(default_factory=dict)  # the same by RPC
    start_delay: float | None = 0.0  # of each container; None: it never starts
    no_capacity: set[str] = field(default_factory=set)  # GPU types that are not to be had
    dropped: set[int] = field(default_factory=set)  # chunks by index, lost on their way
    doubled: set[int] = field(default_factory=set)  # chunks that arrive twice
    cuts: list[int] = field(default_factory=list)  # chunks after which the stream breaks, once
    deaf: bool = False  # a stream that was opened for one attempt brings nothing of later ones
    twice: int = 0  # of the next deliveries of an input, so many are made to two containers
    tamper_chunk: Callable[[Message], Message] | None = None
    tamper_output: Callable[[Message], Message] | None = None
    builder: str = "2025.06"  # of images, as the environment has it
    paid: bool = True
    environments: set[str] | None = None  # those that there are; None: any that is asked for
    ahead: float = 0.0  # seconds by which the service's clock is ahead of this host's
    slow_build: dict[str, float] = field(default_factory=dict)  # seconds by what a line has
    build_failure: str = ""  # the last lines of an image build that fails
    failures: list[tuple[str, str]] = field(default_factory=list)  # of inputs: status, text
    refusals: list[Refusal] = field(default_factory=list)
    strikes: list[Strike] = field(default_factory=list)
    answers_lost: dict[str, set[str]] = field(default_factory=dict)  # by RPC the requests taken
    _changed: Signal = field(default_factory=Signal)
    _closing: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # ------------------------------------------------------------ for tests

    def refuse(
        self, method: str, status: Status, message: str = "", *, times: int | None = 1
    ) -> None:
        """Answer the next calls of an RPC (`"*"`: of any) with an error."""
        with self._lock:
            self.refusals.append(Refusal(method, status, message, times))

    def lose_answers(self, method: str) -> None:
        """Take each request of an RPC, and answer it, and its repetitions, with an error."""
        self.answers_lost[method] = set()

    def lose(self, *, after: When = 0, times: int = 1) -> None:
        """Kill a container once it has sent `after` chunks.

        At 0 it is gone before its input reaches it, at "claim" once it has claimed that.
        """
        with self._lock:
            self.strikes.append(Strike("lose", after, times))

    def preempt(self, *, after: When = 0, times: int = 1) -> None:
        """Preempt a container once it has sent `after` chunks."""
        with self._lock:
            self.strikes.append(Strike("preempt", after, times))

    def no_payment_method(self) -> None:
        """Refuse every GPU until the workspace can pay (the words are a guess)."""
        self.paid = False

    def quota(self) -> None:
        """Refuse every call: the workspace's limit is reached (the words are a guess)."""
        for method in ("FunctionMap", "AttemptStart", "MapStartOrContinue"):
            text = "the workspace's limit of concurrent GPUs is reached"
            self.refuse(method, Status.RESOURCE_EXHAUSTED, text, times=None)

    def client_too_old(self) -> None:
        """Refuse everything: the client is no longer served (the words are a guess)."""
        text = "this version of the client is no longer supported; please upgrade"
        self.refuse("*", Status.FAILED_PRECONDITION, text, times=None)

    def fail_inputs(self, status: str, text: str = "", *, times: int = 1) -> None:
        """Give the next inputs a result (`"INTERNAL_FAILURE"`, `"TIMEOUT"`...) of the service's."""
        with self._lock:
            self.failures += [(status, text)] * times

    def clear(self) -> None:
        """Let nothing go wrong any more."""
        fresh = Faults()
        kept = {"token", "_changed", "_closing", "_lock"}
        for name, value in vars(fresh).items():
            if name not in kept:
                setattr(self, name, value)

    # ------------------------------------------------------------ for the rooms

    def delay_of(self, method: str) -> float:
        """Return how long a request of a client is under way."""
        return self.slow.get(method, self.delay)

    def time_of(self, line: str) -> float:
        """Return how long a step of an image's build takes that begins with this line."""
        return sum(seconds for part, seconds in self.slow_build.items() if part in line)

    def check(self, method: str, caller: Caller) -> None:
        """Raise what this request is to be answered with."""
        if caller.container is None:
            self._check_token(caller)
        with self._lock:
            for rule in self.refusals:
                if rule.method in {method, "*"} and rule.times != 0:
                    rule.times = None if rule.times is None else rule.times - 1
                    raise GRPCError(rule.status, rule.message)

    def loses_answer(self, method: str) -> bool:
        """Tell whether what is answered to this request never gets to who asks."""
        return method in self.answers_lost

    def takes(self, method: str, caller: Caller) -> bool:
        """Tell whether a request whose answer is lost has not come before."""
        taken, key = self.answers_lost[method], caller.metadata["x-idempotency-key"]
        is_new = key not in taken
        taken.add(key)
        return is_new

    def _check_token(self, caller: Caller) -> None:
        sent = caller.metadata.get("x-modal-token-id"), caller.metadata.get("x-modal-token-secret")
        if sent != self.token:
            raise GRPCError(
                Status.UNAUTHENTICATED, "Token validation failed: the token is not known here"
            )

    def cut(self, index: int) -> None:
        """Break a stream of chunks to the client, where that is wanted here."""
        if index in self.cuts:
            self.cuts.remove(index)
            raise GRPCError(Status.UNAVAILABLE, "the stream is gone")

    def deliver_twice(self) -> bool:
        """Tell whether an input goes to a second container while the first one has it."""
        with self._lock:
            self.twice, doubled = max(self.twice - 1, 0), self.twice > 0
        return doubled

    def strike(self, sent: When) -> Blow | None:
        """Return what hits a container that has sent so many chunks, or has claimed its input."""
        with self._lock:
            for rule in self.strikes:
                if rule.times > 0 and _due(rule.after, sent):
                    rule.times -= 1
                    return rule.blow
        return None

    def check_payment(self, resources: Message) -> None:
        """Refuse GPUs to those who can't pay for them."""
        if resources.gpu_config.gpu_type and not self.paid:
            raise GRPCError(
                Status.PERMISSION_DENIED,
                "please add a payment method to use GPUs: modal.com/settings",
            )

    def failure(self) -> Message | None:
        """Return the result that the next input gets without being run."""
        with self._lock:
            if not self.failures:
                return None
            status, text = self.failures.pop(0)
        number = api_pb2.GenericResult.GenericStatus.Value(f"GENERIC_STATUS_{status}")
        return api_pb2.GenericResult(status=number, exception=text)

    def first_available(self, ranked: list[Message]) -> Message:
        """Choose among definitions by rank the first whose GPU is to be had."""
        for definition in ranked:
            if definition.resources.gpu_config.gpu_type not in self.no_capacity:
                return definition
        return ranked[0]

    async def schedule(self, ranked: list[Message], given_up: Callable[[], bool]) -> None:
        """Wait as long as a container has to wait for its machine, or somebody waits for it."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while not self._closing and not given_up():
            delay = self.start_delay
            types = {each.resources.gpu_config.gpu_type for each in ranked}
            if delay is not None and not types <= self.no_capacity:
                left = begun + delay - loop.time()
                if left <= 0:
                    return
                await self._changed.wait(left)
            else:
                await self._changed.wait(0.05)

    def release(self) -> None:
        """Stop all waits: the service closes."""
        self._closing = True
        self._changed.notify()


def _due(after: When, sent: When) -> bool:
    if isinstance(after, int) and isinstance(sent, int):
        return sent >= after
    return after == sent
