"""Each way a call can pass or fail, each both here and far away."""

import dataclasses
import enum
import types

import pytest
from checks import check_even, check_quietly

gpu = pytest.mark.gpu
both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=gpu)])


@dataclasses.dataclass
class Point:
    x: int
    y: int
    tags: list


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Opaque:
    def __repr__(self):
        raise RuntimeError("no picture")


def deep(level):
    if level == 0:
        raise KeyError("bottom")
    deep(level - 1)


def endless():
    return endless()


@both
def test_passes(side):
    assert side


@gpu
def test_list():
    assert [1, 2, 3, *range(40)] == [1, 2, 4, *range(41)]


def test_list_here():
    assert [1, 2, 3, *range(40)] == [1, 2, 4, *range(41)]


@both
def test_dict(side):
    left = {"a": 1, "b": {"c": [1, 2]}, "é": None}
    assert left == {"a": 1, "b": {"c": [1, 3]}, "d": 0}, side


@gpu
def test_string():
    assert "first\nsecond line\nthird" == "first\nsecond  line\nthird\n"


@gpu
def test_long_string():
    assert "x" * 3000 + "y" == "x" * 3000


@gpu
def test_dataclass():
    assert Point(1, 2, ["a"]) == Point(1, 3, ["b"])


@gpu
def test_set():
    assert {1, 2, 3} == {2, 3, 4}


@gpu
def test_enum_and_comparison():
    assert Colour.RED is Colour.BLUE


@gpu
def test_approx():
    assert [0.1 + 0.2, 1.0] == pytest.approx([0.3, 1.1], rel=1e-3)


@gpu
def test_call_in_assert():
    numbers = [3, 1, 2]
    assert all(n < 3 for n in numbers) and sorted(numbers) == numbers


@gpu
def test_message_of_many_lines():
    assert not "text", "why:\n  line two\n  ümlaut, 日本, \U0001f600"


@both
def test_helper(side):
    check_even(3 if side else 4)


@gpu
def test_hidden_helper():
    check_quietly(5)


@gpu
def test_chain():
    try:
        deep(3)
    except KeyError as error:
        raise ValueError("from below") from error


@gpu
def test_context():
    try:
        1 / 0
    except ZeroDivisionError:
        raise LookupError("while handling")


@gpu
def test_suppressed_context():
    try:
        1 / 0
    except ZeroDivisionError:
        raise LookupError("alone") from None


@gpu
def test_notes():
    error = RuntimeError("noted")
    error.add_note("first note")
    error.add_note("second note\nof two lines")
    raise error


@gpu
def test_group():
    raise ExceptionGroup("several", [ValueError("one"), ExceptionGroup("inner", [KeyError("two")])])


@gpu
def test_recursion():
    endless()


@gpu
def test_mute_exception():
    raise Mute


@gpu
def test_opaque_value():
    value = Opaque()
    assert value == 3


@gpu
def test_generated_code():
    module = types.ModuleType("made")
    exec(compile("def run(x):\n    return 1 / x\n", "<made>", "exec"), module.__dict__)
    module.run(0)


@gpu
def test_surrogate_in_message():
    raise ValueError("half \ud83d and \x00 and \x1b[31mred\x1b[0m")


@gpu
def test_fail():
    pytest.fail("on purpose")


@gpu
def test_fail_without_traceback():
    pytest.fail("only this line", pytrace=False)


def test_fail_without_traceback_here():
    pytest.fail("only this line", pytrace=False)


@gpu
def test_no_raise():
    with pytest.raises(ValueError, match="x"):
        pass


@gpu
def test_wrong_match():
    with pytest.raises(ValueError, match="this"):
        raise ValueError("that")


@gpu
def test_system_exit():
    raise SystemExit(3)


@gpu
def test_base_exception():
    class Odd(BaseException):
        pass

    raise Odd("not an Exception")


@gpu(count=1)
@pytest.mark.slow
def test_marked_twice():
    local_name = {"key": [1, 2]}
    assert local_name["key"] == []


def grouped():
    """Gather errors, one of them in a group of its own."""
    found = []
    for level in range(2):
        try:
            deep(level)
        except KeyError as error:
            found.append(error)
    return [found[0], ExceptionGroup("inner", found[1:])]


@both
def test_group(side):
    raise ExceptionGroup("outer", grouped())


@both
def test_group_from(side):
    try:
        deep(1)
    except KeyError as error:
        raise ExceptionGroup("outer", grouped()) from error
