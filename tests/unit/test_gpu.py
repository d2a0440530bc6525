"""The mark as a value: what it accepts, what it answers to slips, and how marks merge."""

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
    "type": ["A100", "H100!", "RTX 4090", ["A100", "H100"], ("T4",)],
    "min_memory_gib": [40, 0.5],
    "min_capability": [8.0, 8, 9.0, 9, 8.6, 12.1],
    "launcher": ["torchrun"],
    "gpus_per_rank": [1, 8],
    "timeout": [1, 0.5],
    "isolate": [True, False],
    "env": [{}, {"NAME": "text"}, {"_n0": "", "PATH_2": "a=b;c\nd é"}],
}
NAN, INF = float("nan"), float("inf")
BAD: dict[str, list[Any]] = {
    "count": [0, -1, True, False, 1.0, "2", None, [2], MOST_GPUS + 1],
    "type": [
        "",
        [],
        [1],
        [""],
        4,
        None,
        {"A100"},
        "A100:2",
        "A100,H100",
        "!",
        " - ",
        "A\0",
        "\ud800",
    ],
    "min_memory_gib": [0, -1, True, "40GB", None, NAN, INF, -INF, 10**400],
    "min_capability": [0, "8.0", True, None, NAN, INF, 80, 8.65, -8.0, 10**400],
    "launcher": [1, None, ["torchrun"], "", "Torchrun", "torch", "srun", "ray", "spawn"],
    "gpus_per_rank": [0, True, "1", None],
    "timeout": [0, -3, True, "1", None, NAN, INF, 10**400],
    "isolate": [0, 1, "yes", None],
    "env": [
        *([], {"NAME": 1}, {1: "text"}, "NAME=text", None, {"NAME": None}, {"N": b""}),
        *({"": "a"}, {"0A": ""}, {"A-B": ""}, {"A=B": ""}, {"A\0": ""}, {"A ": ""}, {"É": ""}),
        *({"A\n": ""}, {"A": "b\0c"}, {"A": "\ud800"}),
        *({"CUDA_VISIBLE_DEVICES": ""}, {"A": "", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        *({"PYTEST_REMOTEGPU": ""}, {"PYTEST_REMOTEGPU_X": ""}, {"REMOTEGPU_WORKER": ""}),
    ],
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
    [(name, value) for name, values in GOOD.items() for value in values],
)
def test_what_is_well_typed_is_read_as_it_stands(name: str, value: Any) -> None:
    assert gpu.parse_mark((), {name: value}) == {name: value}


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("type", "A100:2", "the count is an argument of its own: gpu(count=2, type='A100')"),
        ("type", ["L4", "A100 : 2"], "gpu(count=2, type='A100')"),
        ("type", "A100, L4", "several names are a list: ['A100', 'L4']"),
        ("min_capability", 80, "for 80 write 8.0"),
        ("min_capability", "8.0", "for '8.0' write 8.0"),
        ("min_capability", "sm_120", "for 'sm_120' write 12.0"),
        ("env", {"A B": "1"}, "'A B' is no name of a variable"),
        ("env", {"A": 1}, "A can't have the value 1"),
        ("env", {"A": "a", "B": "b\0"}, "B can't have the value 'b\\x00'"),
        ("env", {"CUDA_VISIBLE_DEVICES": "0"}, "CUDA_VISIBLE_DEVICES is set by the plugin itself"),
        ("env", {"CUDA_DEVICE_ORDER": "0"}, "CUDA_DEVICE_ORDER is set by the plugin itself"),
        ("env", {"PYTEST_REMOTEGPU": "0"}, "PYTEST_REMOTEGPU is set by the plugin itself"),
    ],
)
def test_a_common_slip_is_answered_with_the_way_out(name: str, value: Any, hint: str) -> None:
    assert f"not {value!r}; " in refusal(**{name: value})
    assert hint in refusal(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("type", 4), ("min_capability", None), ("env", [])])
def test_where_nobody_knows_what_was_meant_nothing_is_guessed(name: str, value: Any) -> None:
    assert refusal(**{name: value}).endswith(f"not {value!r}")


@given(
    st.lists(anything, max_size=2),
    st.dictionaries(st.sampled_from([*gpu.ARGUMENTS, "x"]), anything, max_size=2),
)
def test_no_value_upsets_it(args: list[Any], kwargs: dict[str, Any]) -> None:
    try:
        read = gpu.parse_mark(tuple(args), kwargs)
    except MarkerError:
        return
    assert set(read) <= {*GOOD}
    assert read.get("count", 1) in range(1, MOST_GPUS + 1)
    if "gpus_per_rank" in read and not read.get("launcher"):
        with pytest.raises(MarkerError, match="needs a launcher"):
            gpu.merge_marks([((), read)])
        return
    shape = gpu.merge_marks([((), read)])
    assert hash(shape) == hash(gpu.merge_marks([(tuple(args), kwargs)]))
    assert shape.min_memory_gib < INF
    assert shape.min_capability < 20
    for name, value in shape.env:
        assert name.isidentifier()
        assert value.encode().count(b"\0") == 0


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("NVIDIA A100-SXM4-40GB", {"nvidia", "a100", "sxm4", "40gb"}),
        ("A100-40GB", {"a100", "40gb"}),
        (" H100! ", {"h100"}),
        ("RTX  4090", {"rtx", "4090"}),
        ("-!", set()),
    ],
)
def test_a_name_in_words(name: str, cut: set[str]) -> None:
    assert gpu.words(name) == cut


# merging


names = st.sampled_from(["A", "B", "C"])
values: dict[str, st.SearchStrategy[Any]] = {
    "count": counts,
    "type": st.sampled_from(["A100", "L4", ["L4", "T4"]]),
    "min_memory_gib": st.integers(1, 80) | st.floats(0.5, 80),
    "min_capability": st.sampled_from([8, 8.6, 9.0]),
    "timeout": st.integers(1, 9),
    "env": st.dictionaries(names, st.text("xy", max_size=1)),
}
marks_of_a_test = st.lists(
    st.tuples(st.just(()), st.fixed_dictionaries({}, optional=values))
    | st.tuples(st.tuples(counts), st.fixed_dictionaries({}, optional={"env": values["env"]})),
    max_size=4,
)


@given(marks_of_a_test)
def test_for_each_argument_the_nearest_mark_wins(marks: list[Mark]) -> None:
    said = [{**kwargs, **({"count": args[0]} if args else {})} for args, kwargs in marks]
    merged = gpu.merge_arguments(marks)
    assert merged.keys() == {name for given_ in said for name in given_}
    for name in merged.keys() - {"env"}:
        assert merged[name] == next(given_[name] for given_ in said if name in given_)
    for name, value in merged.get("env", {}).items():
        assert value == next(
            given_["env"][name] for given_ in said if name in given_.get("env", {})
        )
    assert merged.get("env", {}).keys() == {
        name for given_ in said for name in given_.get("env", {})
    }


@given(marks_of_a_test)
def test_a_shape_says_what_the_arguments_say(marks: list[Mark]) -> None:
    merged = gpu.merge_arguments(marks)
    types = merged.get("type", [])
    assert gpu.merge_marks(marks) == Shape(
        count=merged.get("count", 1),
        type=(types,) if isinstance(types, str) else tuple(types),
        min_memory_gib=merged.get("min_memory_gib", 0),
        min_capability=merged.get("min_capability", 0),
        env=tuple(sorted(merged.get("env", {}).items())),
    )


@given(st.lists(marks_of_a_test, max_size=4))
def test_shapes_can_be_keys_and_sorted(several: list[list[Mark]]) -> None:
    shapes = [gpu.merge_marks(marks) for marks in several]
    assert sorted(set(shapes)) == sorted(dict.fromkeys(shapes))


def test_equal_demands_are_one_shape() -> None:
    one = gpu.merge_marks([((), {"type": "L4", "min_capability": 8, "env": {"A": "1", "B": "2"}})])
    two = gpu.merge_marks(
        [((), {"type": ["L4", "L4"], "env": {"B": "2"}}), ((), {"env": {"A": "1"}}),
        ((1,), {"type": "T4", "min_capability": 8.0})])  # fmt: skip
    assert one == two
    assert hash(one) == hash(two)
    assert isinstance(one.min_capability, float)


def test_an_ill_formed_mark_is_found_behind_a_nearer_one() -> None:
    with pytest.raises(MarkerError, match="cuont"):
        gpu.merge_marks([((2,), {}), ((), {"cuont": 1})])


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (Shape(0), "no GPU"),
        (Shape(1), "1 GPU"),
        (Shape(2), "2 GPUs"),
        (Shape(1, ("A100", "L4")), "1 GPU (A100 or L4)"),
        (
            Shape(2, ("H100",), 80.0, 9.0, (("A", "1"),)),
            "2 GPUs (H100, at least 80 GiB, capability 9.0 or newer, A=1)",
        ),
    ],
)
def test_a_shape_in_words(shape: Shape, text: str) -> None:
    assert str(shape) == text


def test_shapes_sort_by_their_count() -> None:
    assert sorted([Shape(2), Shape(0), Shape(1)]) == [Shape(0), Shape(1), Shape(2)]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("slow", "slow"),
        (" slow : takes (much) time", "slow"),
        (f"{gpu.SIGNATURE}: run this test where GPUs are", "gpu"),
        ("gpu (memory): needs a card", "gpu"),
        ("limit(of: int): seconds", "limit"),
        ("", ""),
    ],
)
def test_the_name_of_a_marker(line: str, name: str) -> None:
    """As pytest reads the lines of the ini value ``markers``."""
    assert gpu.marker_name(line) == name
