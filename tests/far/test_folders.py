"""A folder that can't be collected on the far side: it says so, as plainly, and others go on."""

from __future__ import annotations

import re

import pytest

from session.running import CPU, run, said

FAR = (CPU, "-o", "remotegpu_collect=far")
ONE = "import pytest\n@pytest.mark.gpu\ndef test_it(): pass\n"
TWO = "import pytest\n@pytest.mark.gpu(2)\ndef test_it(): pass\n"
ONLY_THERE = """
import os
import pytest

if "REMOTEGPU_WORKER" in os.environ or "FAILS" in os.environ:
    {does}
"""
TOOK = re.compile(r" in [0-9.]+s .*")
ON_THEIR_OWN = ("plugins:", "remote:", "1 gpu test", "2 gpu tests")
"""How lines begin that only one of two sessions has, and that the folder has no part in."""


def lay_out(pytester: pytest.Pytester, does: str, *, package: bool = False) -> None:
    """Make a project with a folder whose conftest does this on the far side, and a good one."""
    for name in ("sub", "sub/deep", "sup"):
        pytester.mkdir(name)
        (pytester.path / name / "test_in.py").write_text(ONE)
    (pytester.path / "sub" / "test_more.py").write_text(TWO)
    (pytester.path / "sub" / "conftest.py").write_text(ONLY_THERE.format(does=does))
    if package:
        (pytester.path / "sub" / "__init__.py").touch()
    pytester.makeini("[pytest]\naddopts = --import-mode=importlib\n")
    pytester.makepyfile(test_good=ONE)


def lines(result: pytest.RunResult) -> list[str]:
    """Give what a session says of its collection, without times."""
    found = result.stdout.lines
    start = next(place for place, line in enumerate(found) if line.startswith("collected"))
    return [
        TOOK.sub("", line).strip("= ")
        for line in found[start:]
        if not line.startswith(ON_THEIR_OWN)
    ]


@pytest.mark.parametrize(
    ("does", "package"),
    [("pytest.fail('no luck')", False), ("import none_such", True)],
    ids=["folder", "package"],
)
def test_a_conftest_that_fails_there(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, does: str, *, package: bool
) -> None:
    """One error, of the folder, in plain pytest's words, although two workers fail for it."""
    lay_out(pytester, does, package=package)
    result = run(pytester, *FAR)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    monkeypatch.setenv("FAILS", "1")
    plain = run(pytester)
    assert lines(result) == lines(plain)
    assert "ERROR collecting sub" in said(result)


def test_the_others_run_where_that_is_asked_for(pytester: pytest.Pytester) -> None:
    lay_out(pytester, "1/0")
    result = run(pytester, *FAR, "--continue-on-collection-errors", "-rA")
    result.assert_outcomes(passed=2, errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "ERROR sub - ZeroDivisionError: division by zero" in result.stdout.lines


def test_no_other_file_is_asked_for(pytester: pytest.Pytester) -> None:
    lay_out(pytester, "1/0")
    result = run(pytester, *FAR, "--ignore=sup", "--ignore=test_good.py")
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_a_conftest_that_skips_its_folder_there(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One skip, of the folder, at its place and with its reason."""
    lay_out(pytester, "pytest.importorskip('none_such')")
    result = run(pytester, *FAR, "-rs")
    result.assert_outcomes(passed=2, skipped=1)
    monkeypatch.setenv("FAILS", "1")
    plain = run(pytester, "-rs")
    told = [line for line in result.stdout.lines if line.startswith("SKIPPED")]
    assert told == [line for line in plain.stdout.lines if "none_such" in line] != []
    assert result.ret == 0


@pytest.mark.parametrize("does", ["1/0", "pytest.skip('not there')"])
def test_one_that_is_collected_here(pytester: pytest.Pytester, does: str) -> None:
    """Each test says what its folder did there; the good ones run."""
    lay_out(pytester, does)
    result = run(pytester, CPU, "-o", "remotegpu_collect=here", "-rEs")
    text = said(result)
    if does == "1/0":
        result.assert_outcomes(passed=2, errors=4)
        assert "ZeroDivisionError: division by zero" in text
        assert text.count("the far side could not collect sub; its traceback is above") >= 3
    else:
        result.assert_outcomes(passed=2, skipped=3)
        assert "SKIPPED [3] sub/conftest.py:6: not there" in text


def test_its_conftests_are_loaded_there_only(pytester: pytest.Pytester) -> None:
    """A folder that fails is an error with its place; one that is skipped is a skip."""
    lay_out(pytester, "1/0")
    (pytester.path / "sup" / "conftest.py").write_text(
        ONLY_THERE.format(does="pytest.skip('not there')")
    )
    options = (CPU, "-o", "remotegpu_conftest=far", "--continue-on-collection-errors", "-rEs")
    result = run(pytester, *options)
    result.assert_outcomes(passed=1, errors=1, skipped=1)
    assert "ERROR sub - ZeroDivisionError: division by zero" in result.stdout.lines
    assert "SKIPPED [1] sup/conftest.py:6: not there" in said(result)


def test_one_that_can_not_be_imported_here(pytester: pytest.Pytester) -> None:
    """The way out is named, as it is for a conftest of the root; not without a far side."""
    folder = pytester.mkdir("sub")
    (folder / "conftest.py").write_text("import none_such\n")
    (folder / "test_in.py").write_text(ONE)
    way_out = "E   with remotegpu_conftest = far conftests are loaded on the far side only"
    assert way_out in said(run(pytester, *FAR))
    assert way_out not in said(run(pytester))
