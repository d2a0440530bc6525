"""Values of every type; each test proves that id and value belong together."""

import enum
import functools
import pathlib
import types

import pytest

gpu = pytest.mark.gpu
both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=gpu)])


class Colour(enum.Enum):
    RED = 1
    BLUE = "two"


class Flag(enum.Flag):
    A = 1
    B = 2


class Tagged:
    def __init__(self, tag):
        self.tag = tag

    def __repr__(self):
        return f"Tagged({self.tag})"


class Dtype:
    """Named like a torch dtype: a repr of its own and no name."""

    def __init__(self, name):
        self.text = name

    def __repr__(self):
        return f"torch.{self.text}"

    __str__ = __repr__


def square(x):
    return x * x


VALUES = [
    (0.1 + 0.2),
    -0.0,
    1e300,
    float("nan"),
    float("inf"),
    1 + 2j,
    2**70,
    None,
    True,
    ...,
    b"\xff\x00bytes",
    Colour.RED,
    Flag.A | Flag.B,
    {1},
    frozenset({"one"}),
    {"k": [1, (2,)]},
    (1, 2),
    [],
    lambda x: x,
    square,
    functools.partial(square, 3),
    len,
    int,
    Tagged,
    Tagged("instance"),
    types.SimpleNamespace(a=1),
    pathlib.Path("/a/b"),
    range(3),
    Dtype("bfloat16"),
    (n for n in "generator"),
    open,
]

TEXTS = [
    "",
    " ",
    "two words",
    "a::b",
    "[x]",
    "x]y",
    "a/b",
    "../up",
    "é日本\U0001f600",
    "line\nbreak",
    "tab\tcr\rbell\x07",
    "null\x00byte",
    "back\\slash",
    "quo'te\"s",
    "-dash",
    "semi;colon & <xml>",
    "percent%20",
    "half\ud83d",
    "l" * 300,
    "日" * 100,
]


@both
@pytest.mark.parametrize("value", VALUES)
def test_value(side, value, request):
    print(type(value).__name__)
    assert request.node.callspec.params["value"] is value
    assert any(value is v for v in VALUES)


@both
@pytest.mark.parametrize("text", TEXTS)
def test_text(side, text, request):
    print(ascii(text), ascii(request.node.name))
    assert text in TEXTS


@gpu
@pytest.mark.parametrize("text", ["x" * 300, "short"])
def test_text_fails(text):
    assert text == "other"


@both
@pytest.mark.parametrize("dtype", [Dtype("float16"), Dtype("bfloat16")], ids=str)
def test_dtype(side, dtype, request):
    assert repr(dtype) in request.node.name


@both
@pytest.mark.parametrize("n", [1, 2, 3], ids=["a", "a", "b"])
def test_same_ids(side, n, request):
    print(n, request.node.name)


@gpu
@pytest.mark.parametrize("n", [1, 1, 1])
def test_same_values(n, request):
    print(request.node.name)


@gpu
@pytest.mark.parametrize("n", [1, 2, 3], ids=["first", None, "日本"])
def test_some_ids(n, request):
    assert {1: "first", 2: "2"}.get(n, "") in request.node.name


@gpu
@pytest.mark.parametrize("a,b", [(1, 2), pytest.param(3, 4, id="three four")])
def test_pairs(a, b):
    assert b == a + 1


@both
@pytest.mark.parametrize("x", [1, 2])
@pytest.mark.parametrize("y", ["p", "q", "r"])
def test_stacked(side, x, y, request):
    assert f"[{y}-{x}-{side}]" in request.node.name


@pytest.mark.parametrize(
    "n",
    [
        1,
        pytest.param(2, marks=gpu),
        pytest.param(3, marks=[gpu, pytest.mark.xfail(reason="three")]),
        pytest.param(4, marks=[gpu(count=1), pytest.mark.skip(reason="four")]),
        pytest.param(5, marks=pytest.mark.skipif("True", reason="five")),
    ],
)
def test_marks(n):
    assert n < 3


@gpu
@pytest.mark.parametrize("n", [])
def test_empty(n):
    raise AssertionError("never")


@pytest.mark.parametrize("n", [])
def test_empty_here(n):
    raise AssertionError("never")


@both
def test_generated(side, generated):
    assert generated in (10, 20)


@both
def test_function_fixture(side, per_function):
    assert per_function.startswith("function-")


@gpu
@pytest.mark.parametrize("per_function", ["direct"])
def test_overridden(per_function):
    assert per_function == "direct"


@gpu
@pytest.mark.parametrize("per_function", ["indirect", "ways"], indirect=True)
def test_indirect(per_function):
    assert per_function in ("function-indirect", "function-ways")


@gpu
@pytest.mark.parametrize(
    ("per_function", "n"), [("i", 1), ("j", 2)], indirect=["per_function"]
)
def test_partly_indirect(per_function, n):
    assert (per_function, n) in [("function-i", 1), ("function-j", 2)]


TESTS = {}
for number in (1, 2, 3):

    def body(number=number):
        print("number", number)
        return number

    TESTS[number] = body


@gpu
@pytest.mark.parametrize("k", sorted(TESTS))
def test_closures(k):
    assert TESTS[k]() == k


@gpu
@pytest.mark.parametrize("call", TESTS.values())
def test_closure_values(call):
    assert call() in (1, 2, 3)
