"""Which tests of the far side a command line chooses, and who collects what it names."""

from __future__ import annotations

import pytest

from session.running import CPU, run, said

FAR = ("-o", "remotegpu_collect=far")
WAYS = {
    "here": ("-o", "remotegpu_collect=here"),
    "far": FAR,
    "conftest": (*FAR, "-o", "remotegpu_conftest=far"),
}
NOTED = """
    import os, pytest
    with open("imports-of-large", "a") as file: print(os.getpid(), file=file)

    @pytest.mark.gpu(2)
    def test_a(): pass

    @pytest.mark.gpu(2)
    def test_b(): pass
"""
MIXED = """
    import pytest

    @pytest.fixture
    def noted():
        with open("noted", "a") as file: print("up", file=file)
        yield
        with open("noted", "a") as file: print("down", file=file)

    @pytest.mark.gpu
    def test_far(noted): pass

    def test_here(): pass

    class TestInner:
        @pytest.mark.gpu
        @pytest.mark.parametrize("value", [1, 2])
        def test_in(self, value): pass
"""


@pytest.mark.parametrize("names", [["test_large.py"], ["test_large.py::test_a"] * 2])
def test_a_file_that_is_named_twice(pytester: pytest.Pytester, names: list[str]) -> None:
    """It is collected by the runner of its tests, as one that is named once, with one import."""
    pytester.makepyfile(
        test_large=NOTED, test_small="import pytest\n@pytest.mark.gpu(1)\ndef test_c(): pass"
    )
    options = (*FAR, "--remote-all", "-k", "test_a or test_c")
    result = run(pytester, CPU, *options, *names, "test_small.py")
    result.assert_outcomes(passed=2, deselected=2 - len(names))
    assert len((pytester.path / "imports-of-large").read_text().split()) == 1


def ids(result: pytest.RunResult) -> list[str]:
    return [line for line in result.stdout.lines if "::" in line]


@pytest.mark.parametrize(
    "arguments",
    [
        ("test_mixed.py::test_far", "test_mixed.py"),
        ("test_mixed.py::TestInner::test_in[2]", "./test_mixed.py::test_here", "test_mixed.py"),
        ("--keep-duplicates", "test_mixed.py", "test_mixed.py"),
        ("--keep-duplicates", "sub/test_sub.py::test_far", "sub/../sub", "."),
    ],
    ids=["id", "ids", "file", "folder"],
)
def test_what_is_named_again_is_collected_as_plainly(
    pytester: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    """As often as pytest would, from the same tree."""
    pytester.makepyfile(**{"test_mixed": MIXED, "sub/test_sub": MIXED})
    plain = ids(run(pytester, "--collect-only", "-q", *arguments))
    assert plain
    for way, options in WAYS.items():
        found = ids(run(pytester, CPU, *options, "--collect-only", "-q", *arguments))
        assert found == plain, way


@pytest.mark.parametrize("way", WAYS)
def test_one_that_is_chosen_twice_runs_twice(pytester: pytest.Pytester, way: str) -> None:
    """Each time with fixtures of its own."""
    pytester.makepyfile(test_mixed=MIXED)
    names = ["test_mixed.py"] * 2
    result = run(pytester, CPU, *WAYS[way], "--keep-duplicates", *names, "-v")
    result.assert_outcomes(passed=8)
    assert (pytester.path / "noted").read_text().split() == ["up", "down"] * 2


def test_one_that_can_not_be_made_again_says_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_doc="def half():\n    '''\n    >>> 4 // 2\n    2\n    '''\n")
    options = ("--keep-duplicates", "--doctest-modules", "--remote-all")
    result = run(pytester, CPU, *FAR, *options, "test_doc.py", "test_doc.py")
    result.assert_outcomes(passed=1, errors=1)
    assert "is chosen more than once, and no test of its kind can be made again" in said(result)


def test_one_whose_class_wants_more_says_so(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest
        class Odd(pytest.Function):
            def __init__(self, *, more, **rest):
                super().__init__(**rest)
        @pytest.hookimpl(tryfirst=True)
        def pytest_pycollect_makeitem(collector, name, obj):
            if name == "test_odd":
                return Odd.from_parent(collector, name=name, more=1)
    """)
    pytester.makepyfile(test_odd="import pytest\n@pytest.mark.gpu\ndef test_odd(): pass")
    result = run(pytester, CPU, *FAR, "--keep-duplicates", "test_odd.py", "test_odd.py")
    result.assert_outcomes(passed=1, errors=1)
    assert "no test of its kind can be made again" in said(result)
