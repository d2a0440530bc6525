"""What led to an exception is found, and what its frames hold is let go, but for those that run."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Generator
from traceback import walk_tb
from typing import Any

import pytest

from pytest_remotegpu.worker.exceptions import related, release


class Tensor:
    """Something large."""


def fail(tensor: Tensor) -> None:
    held = tensor
    raise ValueError(f"with {held}")


def caught(error_of: Any) -> tuple[BaseException, weakref.ref[Tensor]]:
    tensor = Tensor()
    try:
        error_of(tensor)
    except BaseException as error:  # noqa: BLE001  whichever it is
        return error, weakref.ref(tensor)
    raise AssertionError("it raised nothing")


def translated(tensor: Tensor) -> None:
    try:
        fail(tensor)
    except ValueError:
        tensor = Tensor()
        raise KeyError("another") from None


def grouped(tensor: Tensor) -> None:
    errors = []
    for _ in range(2):
        try:
            fail(tensor)
        except ValueError as error:
            errors.append(error)
    raise BaseExceptionGroup("both", errors)


def in_generator(tensor: Tensor) -> None:
    def generate(tensor: Tensor) -> Generator[None]:
        fail(tensor)
        yield

    next(generate(tensor))


def in_coroutine(tensor: Tensor) -> None:
    async def work(tensor: Tensor) -> None:
        await asyncio.sleep(0)
        fail(tensor)

    asyncio.run(work(tensor))


@pytest.mark.parametrize("looked_at", [True, False])
@pytest.mark.parametrize("error_of", [fail, translated, grouped, in_generator, in_coroutine])
def test_whoever_keeps_an_exception_keeps_nothing_else(error_of: Any, looked_at: bool) -> None:
    error, tensor = caught(error_of)
    gc.collect()
    assert tensor() is not None, "nothing was held in the first place"
    if looked_at:
        seen = [frame.f_locals for frame, _ in walk_tb(error.__traceback__)]
        assert "tensor" in seen.pop()
    trace = error.__traceback__
    release([error])
    gc.collect()
    assert tensor() is None
    assert error.__traceback__ is trace


def test_relatives_are_found_once_each() -> None:
    cause, context, member = ValueError("cause"), ValueError("context"), ValueError("member")
    error = BaseExceptionGroup("all", [member, BaseExceptionGroup("inner", [cause])])
    error.__cause__, error.__context__ = cause, context
    context.__context__ = error  # a circle
    found = list(related(error))
    assert found[0] is error
    assert len(found) == 5
    assert {id(one) for one in (cause, context, member)} <= {id(one) for one in found}


def test_a_frame_that_runs_is_left_alone() -> None:
    tensor = Tensor()
    try:
        fail(tensor)
    except ValueError as error:
        release([error])
    assert isinstance(tensor, Tensor)


def test_a_generator_that_waits_goes_on() -> None:
    """As a fixture does that has caught an error, keeps it, and yields."""

    def fixture() -> Generator[BaseException, None, str]:
        tensor = Tensor()
        try:
            fail(tensor)
        except ValueError as error:
            yield error
        return repr(tensor)

    waiting = fixture()
    release([next(waiting)])
    with pytest.raises(StopIteration) as ended:
        next(waiting)
    assert "Tensor" in ended.value.value


def test_coroutines_that_wait_go_on() -> None:
    async def serve(errors: list[BaseException]) -> AsyncIterator[str]:
        tensor = Tensor()
        try:
            fail(tensor)
        except ValueError as error:
            errors.append(error)
        yield "first"
        yield repr(tensor)

    async def work() -> tuple[str, str]:
        errors: list[BaseException] = []
        serving = serve(errors)
        waiting = asyncio.ensure_future(wait(errors))
        assert await anext(serving) == "first"
        await asyncio.sleep(0)
        assert len(errors) == 2
        release(errors)
        errors.clear()
        return await anext(serving), await waiting

    async def wait(errors: list[BaseException]) -> str:
        tensor = Tensor()
        try:
            fail(tensor)
        except ValueError as error:
            errors.append(error)
        for _ in range(3):
            await asyncio.sleep(0)
        return repr(tensor)

    assert all("Tensor" in text for text in asyncio.run(work()))
