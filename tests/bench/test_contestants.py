"""From what a test hands in to calls: names, and copies of inputs on which calls take turns."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_remotegpu.bench.contestants import Inputs, named
from pytest_remotegpu.errors import UsageError


def one() -> None:
    """Do nothing."""


def two() -> None:
    """Do nothing either."""


def test_names_are_given_where_there_are_none() -> None:
    assert named(one) == {"contestant": one}
    assert named(one, two) == {"contestant": one, "reference": two}
    assert list(named({"b": one, "a": two}, one)) == ["b", "a", "reference"]
    assert named(one, {"torch": two}) == {"contestant": one, "torch": two}


@pytest.mark.parametrize(
    ("contestant", "reference", "text"),
    [
        ({}, None, "got no contestant: the mapping is empty"),
        (one, {}, "got no reference: the mapping is empty"),
        (None, None, "contestant is None, which can't be called; hand in the function itself"),
        (one, 3, "reference is 3, which can't be called"),
        ({"a": one}, {"a": two}, "two contestants are named 'a'; rename one of them"),
        ({"reference": one}, two, "two contestants are named 'reference'"),
        ({1: one}, None, "a contestant is named 1; name it by a text"),
        ({"": one}, None, "a contestant is named ''"),
    ],
)
def test_what_can_not_be_meant(contestant: Any, reference: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        named(contestant, reference)


def test_arguments_reach_the_function() -> None:
    inputs = Inputs((1, 2), {"c": 3})
    call = inputs.call(lambda a, b, c: (a, b, c))
    assert call() == (1, 2, 3)
    assert Inputs().call(one) is one
    assert (inputs.tensors(), inputs.size, inputs.dtype()) == ([], 0, "")
    assert inputs.copies_for(2**20, 2**30) == 1


# with tensors


@pytest.fixture
def torch() -> Any:
    """Give torch."""
    return pytest.importorskip("torch")


def test_tensors_are_found_wherever_they_are(torch: Any) -> None:
    a, b, c = torch.ones(2, dtype=torch.int32), torch.ones(3).half(), torch.ones(4)
    inputs = Inputs(([a, (b,)], "text"), {"x": {"y": c}})
    assert [tuple(each.shape) for each in inputs.tensors()] == [(2,), (3,), (4,)]
    assert inputs.dtype() == "float16"
    assert inputs.size == 8 + 6 + 16


def test_memory_counts_once(torch: Any) -> None:
    a = torch.ones(8, 8)
    assert Inputs((a, a[1:], a.t())).size == 256


@pytest.mark.parametrize(
    ("cache", "free", "copies"),
    [
        (1024, 2**30, 8),  # of 256 bytes: twice the cache
        (0, 2**30, 2),
        (64 * 1024, 2**30, 1),  # more copies than are made
        (1024, 8 * 8 * 256, 8),
        (1024, 8 * 8 * 256 - 8, 1),  # no room
    ],
)
def test_copies_are_more_than_the_cache_holds(
    torch: Any, cache: int, free: int, copies: int
) -> None:
    assert Inputs((torch.ones(64),)).copies_for(cache, free) == copies


def test_copies_are_alike_and_apart(torch: Any) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    given = (base.t(), base[1], base[:1].expand(5, 6), 7)
    seen: list[Any] = []
    call = Inputs(given).turning(lambda *args: seen.append(args), 3)
    for _ in range(6):
        call()
    assert seen[0][0] is seen[3][0]
    for copy in seen[:3]:
        assert copy[3] == 7
        for mine, its in zip(given[:3], copy[:3], strict=True):
            assert torch.equal(mine, its)
            assert (mine.stride(), mine.storage_offset()) == (its.stride(), its.storage_offset())
        # views of one memory stay that
        assert len({each.untyped_storage().data_ptr() for each in copy[:3]}) == 1
    assert len({copy[0].data_ptr() for copy in (*seen[:3], given)}) == 4


def test_what_is_written_to_one_copy_is_in_no_other(torch: Any) -> None:
    given = torch.zeros(4)
    call = Inputs((given,)).turning(lambda x: x.add_(1), 2)
    assert [call().tolist()[0] for _ in range(4)] == [1, 1, 2, 2]  # type: ignore[attr-defined]
    assert given.tolist() == [0] * 4


def test_contestants_share_copies(torch: Any) -> None:
    inputs = Inputs((torch.zeros(4),))
    first, second = (inputs.turning(lambda x: x.data_ptr(), 2) for _ in range(2))
    assert [first(), first()] == [second(), second()]


# the way back


def values(grads: Any) -> list[Any]:
    return [grad.tolist() for grad in grads]


def test_the_way_back_alone_is_called(torch: Any) -> None:
    x = torch.ones(3, requires_grad=True)
    there: list[int] = []

    def square(x: Any, factor: float) -> Any:
        there.append(1)
        return [factor * x * x, x.detach()]

    call = Inputs((x,), {"factor": 3.0}, backward=True).call(square)
    for _ in range(3):
        assert values(call()) == [[6.0, 6.0, 6.0]]
    assert there == [1]
    assert x.grad is None


def test_a_modules_parameters_get_gradients(torch: Any) -> None:
    layer = torch.nn.Linear(4, 2)
    call = Inputs((torch.ones(3, 4),), backward=True).call(layer)
    assert values(call()) == [[[3.0] * 4] * 2, [3.0] * 2]


def test_copies_need_gradients_too(torch: Any) -> None:
    x = torch.arange(3.0).requires_grad_()
    call = Inputs((x,), backward=True).turning(lambda x: x * x, 2)
    for _ in range(4):
        assert values(call()) == [[0.0, 2.0, 4.0]]


def test_there_has_to_be_a_way_back(torch: Any) -> None:
    with pytest.raises(UsageError, match="neither args nor a module's parameters need a gradient"):
        Inputs((torch.ones(3),), backward=True).call(torch.sin)()
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(UsageError, match="no result has a gradient; return a tensor that depends"):
        Inputs((x,), backward=True).call(lambda x: x.detach())()
