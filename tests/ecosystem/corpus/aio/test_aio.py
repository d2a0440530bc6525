import asyncio

import pytest
import pytest_asyncio


@pytest_asyncio.fixture
async def value():
    await asyncio.sleep(0)
    yield 7
    await asyncio.sleep(0)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def wide():
    yield asyncio.get_running_loop()


@pytest.mark.asyncio
async def test_value(value):
    assert value == 7


@pytest.mark.asyncio
async def test_fails(value):
    await asyncio.sleep(0)
    assert value == 8


@pytest.mark.asyncio(loop_scope="module")
async def test_wide(wide):
    assert wide is asyncio.get_running_loop()


@pytest.mark.asyncio(loop_scope="module")
async def test_wide_again(wide):
    assert wide is asyncio.get_running_loop()


def test_plain():
    pass


async def test_unmarked():
    pass
