"""Session-wide event loops of pytest-asyncio."""

import asyncio

import pytest
import pytest_asyncio

both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=pytest.mark.gpu)])


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def connection():
    return asyncio.get_running_loop()


@both
@pytest.mark.asyncio(loop_scope="session")
async def test_session_loop(side, connection):
    assert connection is asyncio.get_running_loop()


@both
@pytest.mark.asyncio(loop_scope="session")
async def test_same_loop(side, connection):
    await asyncio.sleep(0)
    assert connection is asyncio.get_running_loop()


@both
@pytest.mark.asyncio
async def test_own_loop(side):
    await asyncio.sleep(0)


@both
def test_no_loop_around(side):
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
