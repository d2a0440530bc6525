"""Ids that hold a path of the project are those of a plain run, wherever the project lies there."""

from __future__ import annotations

import re
import sys

import pytest

from session.running import run

SENT = ("--remote=command:env", "-o", f"remotegpu_python={sys.executable}")
FAR = (*SENT, "-o", "remotegpu_collect=far")
HERE = (*SENT, "-o", "remotegpu_collect=here")
TESTS = """
    from pathlib import Path
    import pytest

    ROOT = Path(__file__).parent
    pytestmark = pytest.mark.gpu

    def pytest_generate_tests(metafunc):
        if "generated" in metafunc.fixturenames:
            metafunc.parametrize("generated", [1, 2], ids=[f"{ROOT}/é", None])

    @pytest.fixture(params=[ROOT / "a.txt", ROOT / "b.txt"], ids=str)
    def fixed(request):
        return request.param

    @pytest.mark.parametrize("path", [str(ROOT), f"{ROOT}/a.txt", f"{ROOT}er/b", f"/x{ROOT}", "é"])
    def test_values(path):
        assert str(ROOT) in path or path == "é"

    @pytest.mark.parametrize("path", [f"{ROOT}/{'x' * 200}", f"{ROOT}/tab\\t日"])
    def test_long_and_odd(path):
        assert path.startswith(str(ROOT))

    @pytest.mark.parametrize("number", (n for n in range(2)), ids=(f"{ROOT}:{n}" for n in range(2)))
    @pytest.mark.parametrize("other", [3], ids=lambda number: ROOT / "other")
    @pytest.mark.parametrize("third", [4], ids=[f"--at={ROOT}"])
    def test_given(number, other, third):
        assert number in (0, 1)

    @pytest.mark.parametrize("number", [pytest.param(1, id=f"{ROOT}/one"), 2])
    def test_own(number, generated, fixed):
        assert fixed.parent == ROOT
"""


@pytest.fixture(autouse=True)
def _cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_REMOTEGPU_PRETEND_GPUS", "1")


def plainly(pytester: pytest.Pytester, *options: str) -> list[str]:
    """Give the ids of the tests, in their order."""
    lines = run(pytester, *options, "--co", "-q").stdout.lines
    return [line for line in lines if line.startswith("test_it.py::")]


def names(pytester: pytest.Pytester, *options: str) -> list[str]:
    """Run the tests; give their ids."""
    result = run(pytester, *options, "-v")
    lines = [re.fullmatch(r"(\S+::.*?) PASSED.*", line) for line in result.stdout.lines]
    found = [match[1] for match in lines if match]
    result.assert_outcomes(passed=len(found))
    return found


def test_as_without_a_far_side(pytester: pytest.Pytester) -> None:
    """Also where both sides have collected, and pair what they have by their ids."""
    pytester.makepyfile(test_it=TESTS)
    plain = plainly(pytester)
    assert len(plain) == 17
    # pytest 8 makes an id of the long one as well
    assert sum(str(pytester.path) in name for name in plain) in (15, 16)
    assert names(pytester, *FAR) == plain
    assert names(pytester, *HERE) == plain
    # one by its id, and those that failed before
    assert names(pytester, *FAR, plain[1]) == [plain[1]]


@pytest.mark.parametrize("strategy", ["short", "sha256", "legacy"])
def test_long_texts(pytester: pytest.Pytester, strategy: str) -> None:
    """As ``parametrize_long_str_id_strategy`` says, by the length of the path on this side."""
    if tuple(map(int, pytest.__version__.split(".")[:2])) < (9, 2):
        pytest.skip("pytest 9.2 has this option")
    pytester.makepyfile(
        test_it="""
        from pathlib import Path
        import pytest

        ROOT = Path(__file__).parent

        @pytest.mark.gpu
        @pytest.mark.parametrize("path", [f"{ROOT}/a.txt", f"{ROOT}/{'x' * 200}"])
        def test(path):
            pass
        """
    )
    told = ("-o", f"parametrize_long_str_id_strategy={strategy}")
    plain = plainly(pytester, *told)
    assert len(plain) == 2
    assert names(pytester, *told, *FAR) == plain


def test_a_mistake_is_told_as_plainly(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import pytest

        def pytest_generate_tests(metafunc):
            metafunc.parametrize("number", [1], wrong=2)

        @pytest.mark.gpu
        def test(number):
            pass
        """
    )
    told = []
    for options in ((), FAR):
        shown = run(pytester, *options).stdout.str()
        told.append(shown.partition("collecting test_it.py")[2].rpartition(" in ")[0])
    assert "wrong" in told[0]
    assert told[0] == told[1]
