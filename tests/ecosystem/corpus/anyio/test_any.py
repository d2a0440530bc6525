import anyio
import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
async def value():
    await anyio.sleep(0)
    yield 7


async def test_value(value):
    assert value == 7


async def test_group():
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 0)


async def test_fails(value):
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 0)
        assert value == 8
