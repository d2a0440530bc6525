"""Parameters that are not the same in two processes."""

import random
import threading
import uuid

import first
import pytest

pytestmark = pytest.mark.gpu
SIDE = "first" if first.is_first() else "second"


class Grid:
    pass


class Locked:
    """Can't be pickled."""

    def __init__(self, name):
        self.name = name
        self.lock = threading.Lock()


@pytest.mark.parametrize("name", {"ann", "bob", "cyd", "dan", "eve"})
def test_set(name, request):
    assert request.node.name == f"test_set[{name}]"


@pytest.mark.parametrize("grid", [Grid(), Grid()], ids=repr)
def test_address(grid):
    assert isinstance(grid, Grid)


@pytest.mark.parametrize("key", [uuid.uuid4().hex for _ in range(3)])
def test_uuid(key, request):
    assert request.node.name == f"test_uuid[{key}]"


@pytest.mark.parametrize("x", [random.random() for _ in range(2)])
def test_random(x, request):
    assert request.node.name == f"test_random[{x}]"


@pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.xfail(reason="known"))])
@pytest.mark.parametrize("key", [uuid.uuid4().hex for _ in range(2)])
def test_stacked(key, x, request):
    assert request.node.name == f"test_stacked[{key}-{x}]"
    assert x == 1


@pytest.mark.parametrize("key", [lambda n=n: n for n in (1, 2)], ids=lambda _: uuid.uuid4().hex)
def test_lambda(key):
    assert key() in (1, 2)


@pytest.mark.parametrize("item", [Locked(1), Locked(2)], ids=lambda _: uuid.uuid4().hex)
def test_unpicklable(item):
    assert item.name in (1, 2)


@pytest.mark.parametrize("side", [SIDE, SIDE], ids=["a", "b"])
def test_value_of_the_far_side(side):
    assert side == "shown", f"the value is {side}"


@pytest.fixture(params=[uuid.uuid4().hex for _ in range(2)], scope="module")
def fixed(request):
    return request.param


def test_fixture_parameter(fixed, request):
    assert request.node.name == f"test_fixture_parameter[{fixed}]"


@pytest.mark.parametrize("key", [uuid.uuid4().hex])
def test_id_of_the_call(key, request):
    assert request.node.callspec.id == key
    assert request.node.callspec.params == {"key": key}


class TestClass:
    @pytest.mark.parametrize("key", [uuid.uuid4().hex])
    def test_method(self, key, request):
        assert request.node.nodeid.endswith(f"::TestClass::test_method[{key}]")
