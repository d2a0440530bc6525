"""What a test file's source says of its marks, without importing it."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_remotegpu.classify import Classifier, Judgement
from pytest_remotegpu.gpu import Shape

ONE, TWO = Shape(1), Shape(2)


def judge(folder: Path, source: str, **others: str) -> Judgement:
    """Judge a file among *others*, which are written beside it."""
    for name, text in {"test_it": source, **others}.items():
        path = Path(folder, *name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return Classifier([folder], {"multi_gpu": {"count": 2}}).judge(folder / "test_it.py")


GPU = {
    "function": ("import pytest\n@pytest.mark.gpu\ndef test(): pass", {ONE}),
    "async function": ("import pytest\n@pytest.mark.gpu\nasync def test(): pass", {ONE}),
    "count": ("import pytest\n@pytest.mark.gpu(2)\ndef test(): pass", {TWO}),
    "class": ("import pytest\n@pytest.mark.gpu\nclass TestA:\n def test(self): pass", {ONE}),
    "method": ("import pytest\nclass TestA:\n @pytest.mark.gpu\n def test(self): pass", {ONE}),
    "the nearest wins": (
        (
            "import pytest\n@pytest.mark.gpu(4)\nclass TestA:\n"
            " @pytest.mark.gpu(2)\n def test(self): pass"
        ),
        {TWO},
    ),
    "inherited": (
        "import pytest\nclass Base:\n def test(self): pass\n@pytest.mark.gpu\nclass TestA(Base): 1",
        {ONE},
    ),
    "marked base": (
        (
            "import pytest\n@pytest.mark.gpu(2)\nclass Base: 1\n"
            "class TestA(Base):\n def test(self): pass"
        ),
        {TWO},
    ),
    "module": ("import pytest\npytestmark = pytest.mark.gpu\ndef test(): pass", {ONE}),
    "list": (
        "import pytest\npytestmark = [pytest.mark.slow, pytest.mark.gpu(2)]\ndef test(): pass",
        {TWO},
    ),
    "annotated": (
        "import pytest\npytestmark: list = [pytest.mark.gpu]\ndef test(): pass",
        {ONE},
    ),
    "class attribute": (
        "import pytest\nclass TestA:\n pytestmark = pytest.mark.gpu\n def test(self): pass",
        {ONE},
    ),
    "parameter": (
        (
            "import pytest\n@pytest.mark.parametrize('n', [1, "
            "pytest.param(2, marks=pytest.mark.gpu)])\ndef test(n): pass"
        ),
        {ONE},
    ),
    "list of parameters": (
        (
            "import pytest\nCASES = [pytest.param(2, marks=[pytest.mark.gpu(2)])]\n"
            "@pytest.mark.parametrize('n', CASES)\ndef test(n): pass"
        ),
        {TWO},
    ),
    "another name for it": (
        "import pytest\nfast = pytest.mark.gpu(2)\n@fast\ndef test(): pass",
        {TWO},
    ),
    "pytest by another name": ("import pytest as p\n@p.mark.gpu\ndef test(): pass", {ONE}),
    "mark by itself": ("from pytest import mark as m\n@m.gpu\ndef test(): pass", {ONE}),
    "ini alias": ("import pytest\n@pytest.mark.multi_gpu\ndef test(): pass", {TWO}),
    "condition": (
        (
            "import pytest\ntry:\n import torch\nexcept ImportError:\n pass\nelse:\n"
            " @pytest.mark.gpu\n def test(): pass"
        ),
        {ONE},
    ),
    "two shapes": (
        (
            "import pytest\n@pytest.mark.gpu\ndef test_a(): pass\n@pytest.mark.gpu(2)\n"
            "def test_b(): pass"
        ),
        {ONE, TWO},
    ),
    "count of a variable": (
        "import pytest\nN = 2\n@pytest.mark.gpu(N)\ndef test(): pass",
        None,
    ),
    "decorator that marks": (
        "import pytest\ndef far(f):\n return pytest.mark.gpu(f)\n@far\ndef test(): pass",
        None,
    ),
    "decorator that is made": (
        "import pytest\ndef far(n):\n return pytest.mark.gpu(n)\n@far(2)\ndef test(): pass",
        None,
    ),
    "generated": (
        (
            "import pytest\ndef pytest_generate_tests(metafunc):\n"
            " metafunc.parametrize('a', [pytest.param(1, marks=pytest.mark.gpu)])\n"
            "def test(a): pass"
        ),
        None,
    ),
    "ill-formed mark": ("import pytest\n@pytest.mark.gpu('x')\ndef test(): pass", None),
}


@pytest.mark.parametrize("name", GPU)
def test_marks_are_seen(tmp_path: Path, name: str) -> None:
    source, shapes = GPU[name]
    found = judge(tmp_path, source)
    assert found == Judgement("gpu", None if shapes is None else frozenset(shapes))


PLAIN = {
    "no mark": "def test_gpu(): pass",
    "the word in a text": "def test(): 'pytest.mark.gpu'",
    "another mark": "import pytest\n@pytest.mark.slow(gpu=1)\ndef test(): pass",
    "somebody else's mark": "import other\nother.mark.gpu\ndef test(): pass",
    "inside a test": "import pytest\ndef test(request): request.applymarker(pytest.mark.gpu)",
    "fixture": "import pytest\n@pytest.fixture\ndef gpu(): pass",
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_no_mark(tmp_path: Path, name: str) -> None:
    assert judge(tmp_path, PLAIN[name]).verdict == "plain"


UNCLEAR = {
    "foreign decorator": "from elsewhere import needs\n@needs\ndef test(): pass",
    "computed": "import pytest\nmarks = dict(a=pytest.mark.gpu)\n@marks['a']\ndef test(): pass",
    "star": "from elsewhere import *\ndef test(): pass",
    "broken": "def test(:",
}


@pytest.mark.parametrize("name", UNCLEAR)
def test_what_cannot_be_judged(tmp_path: Path, name: str) -> None:
    assert judge(tmp_path, UNCLEAR[name]).verdict == "unclear"


MARKS = "import pytest\nfast = pytest.mark.gpu(2)\nCASES = [pytest.param(1, marks=fast)]"
IMPORTED = {
    "name": ("from helpers import fast as f\n@f\ndef test(): pass", {"helpers": MARKS}),
    "module": ("import helpers as h\n@h.fast\ndef test(): pass", {"helpers": MARKS}),
    "dotted": ("import pack.helpers\n@pack.helpers.fast\ndef test(): 1", {"pack__helpers": MARKS}),
    "from package": (
        "from pack import helpers\n@helpers.fast\ndef test(): pass",
        {"pack____init__": "", "pack__helpers": MARKS},
    ),
    "relative": ("from .helpers import fast\n@fast\ndef test(): pass", {"helpers": MARKS}),
    "star": ("from helpers import *\n@fast\ndef test(): pass", {"helpers": MARKS}),
    "passed on": (
        "from more import fast\n@fast\ndef test(): pass",
        {"more": "from helpers import fast", "helpers": MARKS},
    ),
    "parameters": (
        (
            "import pytest\nfrom helpers import CASES\n"
            "@pytest.mark.parametrize('n', CASES)\ndef test(n): pass"
        ),
        {"helpers": MARKS},
    ),
    "base class": (
        "from base import Base\nclass TestIt(Base): pass",
        {"base": "import pytest\n@pytest.mark.gpu(2)\nclass Base:\n def test(self): pass"},
    ),
    "tests": (
        "from base import TestThem",
        {"base": "import pytest\n@pytest.mark.gpu(2)\nclass TestThem:\n def test(self): pass"},
    ),
}


@pytest.mark.parametrize("name", IMPORTED)
def test_names_are_followed_into_the_project(tmp_path: Path, name: str) -> None:
    source, others = IMPORTED[name]
    assert judge(tmp_path, source, **others) == Judgement("gpu", frozenset({TWO}))


@pytest.mark.parametrize(
    ("source", "others"),
    [
        ("from a import x\n@x\ndef test(): pass", {"a": "from b import x", "b": "from a import x"}),
        ("x = y\ny = x\n@x\ndef test(): pass", {}),
        ("class A(B): pass\nclass B(A): pass", {}),
        ("from test_it import *\n@x\ndef test(): pass", {}),
    ],
)
def test_circles_end(tmp_path: Path, source: str, others: dict[str, str]) -> None:
    assert judge(tmp_path, source, **others).verdict in {"plain", "unclear"}


def test_a_file_that_is_gone_cannot_be_judged(tmp_path: Path) -> None:
    assert Classifier([tmp_path]).judge(tmp_path / "none.py") == Judgement("unclear", None)


DECORATORS = st.sampled_from(
    [
        "@pytest.mark.gpu",
        "@pytest.mark.gpu(2)",
        "@mine",
        "@pytest.mark.slow",
        "@pytest.mark.parametrize('a', [1, 2])",
        "@staticmethod",
    ]
)


@settings(max_examples=40)
@given(st.lists(st.lists(DECORATORS, max_size=3), max_size=5), st.booleans())
def test_a_file_has_the_mark_where_any_of_its_tests_has(
    tmp_path_factory: pytest.TempPathFactory, tests: list[list[str]], in_class: bool
) -> None:
    lines = ["import pytest", "mine = pytest.mark.gpu(4)"]
    lines += ["class TestIt:"] if in_class and tests else []
    indent = " " * in_class
    for number, decorators in enumerate(tests):
        lines += [indent + line for line in [*decorators, f"def test_{number}(): pass"]]
    source = "\n".join(lines)
    ast.parse(source)
    found = judge(tmp_path_factory.mktemp("judged"), source)
    counts = {"@pytest.mark.gpu": 1, "@pytest.mark.gpu(2)": 2, "@mine": 4}
    expected = {
        next(counts[line] for line in decorators if line in counts)
        for decorators in tests
        if set(decorators) & set(counts)
    }
    # pytest takes the mark that stands nearest to the function for the nearest one
    assert (found.verdict == "gpu") == bool(expected)
    assert found.shapes is not None
    assert all(shape.count in counts.values() for shape in found.shapes)


@settings(max_examples=40)
@given(st.text(max_size=200))
def test_any_text_is_judged(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("judged")
    (folder / "test_it.py").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert Classifier([folder]).judge(folder / "test_it.py").verdict in {"plain", "unclear"}
