"""The mark as a value: what it accepts, how marks merge, and which devices a process would see."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_remotegpu import gpu
from pytest_remotegpu.errors import MarkerError
from pytest_remotegpu.gpu import MOST_GPUS, Shape

Mark = tuple[tuple[Any, ...], Mapping[str, Any]]
counts = st.integers(1, MOST_GPUS)
plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
anything = plain | st.lists(plain, max_size=2) | st.dictionaries(plain, plain, max_size=2)
GOOD: dict[str, list[Any]] = {
    "count": [1, 2, MOST_GPUS],
    "type": ["A100", ["A100", "H100"], ("T4",)],
    "min_memory_gib": [40, 0.5],
    "min_capability": [8.0, 9],
    "launcher": ["torchrun"],
    "gpus_per_rank": [1, 8],
    "timeout": [1, 0.5],
    "isolate": [True, False],
    "env": [{}, {"NAME": "text"}],
}
BAD: dict[str, list[Any]] = {
    "count": [0, -1, True, False, 1.0, "2", None, [2], MOST_GPUS + 1],
    "type": ["", [], [1], [""], 4, None, {"A100"}],
    "min_memory_gib": [0, -1, True, "40GB", None, float("nan")],
    "min_capability": [0, "8.0", True, None],
    "launcher": [1, None, ["torchrun"]],
    "gpus_per_rank": [0, True, "1", None],
    "timeout": [0, -3, True, "1", None, float("nan")],
    "isolate": [0, 1, "yes", None],
    "env": [[], {"NAME": 1}, {1: "text"}, "NAME=text", None],
}


def refusal(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(MarkerError) as caught:
        gpu.parse_mark(args, kwargs)
    return str(caught.value)


def test_the_signature_shown_to_users_is_the_one_that_is_read() -> None:
    scope: dict[str, Any] = {}
    exec(f"def {gpu.SIGNATURE}: pass", scope)  # noqa: S102  our own text
    assert list(inspect.signature(scope["gpu"]).parameters) == list(gpu.ARGUMENTS)
    assert set(gpu.ARGUMENTS) == set(GOOD) == set(BAD)


@pytest.mark.parametrize(
    ("args", "kwargs", "given_"),
    [((), {}, {}), ((2,), {}, {"count": 2}), ((), {"count": 3}, {"count": 3})],
)
def test_count_by_place_or_by_name(
    args: tuple[Any, ...], kwargs: dict[str, Any], given_: dict[str, Any]
) -> None:
    assert gpu.parse_mark(args, kwargs) == given_


def test_an_unknown_argument_is_answered_with_the_valid_ones() -> None:
    said = refusal(cuont=2)
    assert "'cuont'" in said
    assert [name for name in gpu.ARGUMENTS if name not in said] == []


def test_more_than_the_count_by_place() -> None:
    assert "(2, 'A100')" in refusal(2, "A100")


def test_the_count_twice() -> None:
    said = refusal(2, count=3)
    assert "twice" in said
    assert "2" in said
    assert "count=3" in said


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
def test_an_ill_typed_argument_is_named_with_what_it_wants(name: str, value: Any) -> None:
    said = refusal(**{name: value})
    assert f"gpu({name}=...)" in said
    assert repr(value) in said
    assert gpu.ARGUMENTS[name].wants in said


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in GOOD.items() for value in values if name != "count"],
)
def test_what_is_not_built_yet_says_so_and_what_is(name: str, value: Any) -> None:
    said = refusal(**{name: value})
    assert f"gpu({name}={value!r}) is not built yet" in said
    assert said.endswith("what works is: count")


@given(
    st.lists(anything, max_size=2),
    st.dictionaries(st.sampled_from([*gpu.ARGUMENTS, "x"]), anything, max_size=2),
)
def test_no_value_upsets_it(args: list[Any], kwargs: dict[str, Any]) -> None:
    try:
        read = gpu.parse_mark(tuple(args), kwargs)
    except MarkerError:
        return
    assert set(read) <= {"count"}
    assert read.get("count", 1) in range(1, MOST_GPUS + 1)


@given(st.lists(st.just(((), {})) | st.tuples(st.tuples(counts), st.just({}))
    | st.tuples(st.just(()), st.fixed_dictionaries({"count": counts}))))  # fmt: skip
def test_the_nearest_count_wins(marks: list[Mark]) -> None:
    said = [args[0] if args else kwargs["count"] for args, kwargs in marks if args or kwargs]
    assert gpu.merge_marks(marks) == Shape([*said, 1][0])


def test_an_ill_formed_mark_is_found_behind_a_nearer_one() -> None:
    with pytest.raises(MarkerError, match="cuont"):
        gpu.merge_marks([((2,), {}), ((), {"cuont": 1})])


@pytest.mark.parametrize(("count", "text"), [(0, "no GPU"), (1, "1 GPU"), (2, "2 GPUs")])
def test_a_shape_in_words(count: int, text: str) -> None:
    assert str(Shape(count)) == text


def test_shapes_sort_by_their_count() -> None:
    assert sorted([Shape(2), Shape(0), Shape(1)]) == [Shape(0), Shape(1), Shape(2)]


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    """Stand in for the management library of a host with so many cards."""
    number: int = request.param
    monkeypatch.setattr(gpu, "_nvml_device_count", lambda: number)
    return number


@pytest.mark.parametrize(
    ("cards", "variable", "tokens"),
    [
        (0, None, []),
        (2, None, ["0", "1"]),
        (2, "", []),
        (4, "2,0", ["2", "0"]),
        (4, " 3 , 1 ", ["3", "1"]),
        (4, "1,-1,2", ["1"]),
        (2, "0,7,1", ["0"]),
        (2, "-1", []),
        (2, "NoDevFiles", []),
        (2, "GPU-8932f937,MIG-GPU-1/2/3", ["GPU-8932f937", "MIG-GPU-1/2/3"]),
        (0, "0,1", []),
        (0, "GPU-8932f937", []),
    ],
    indirect=["cards"],
)
def test_visible_devices(cards: int, variable: str | None, tokens: list[str]) -> None:
    assert cards >= len(tokens)
    environ = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    assert gpu.visible_devices(environ) == tokens


def test_this_host_can_be_asked() -> None:
    assert gpu.visible_devices({"CUDA_VISIBLE_DEVICES": ""}) == []
    assert all(token.isdecimal() for token in gpu.visible_devices({}))
