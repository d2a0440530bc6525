"""What is read of two runs, what is found between them, and what is said of that."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from .legs import FAR, PLAIN, surroundings
from .outcomes import Outcomes, compare, read
from .results import Row, verdict, write
from .suites import Explained, Suite, load_explained, load_suites

LOCAL = FAR[0]
TESTS = """
    import unittest
    import pytest

    def test_passes(): pass

    def test_fails(): assert 0

    @pytest.mark.parametrize("n", [1, 2])
    def test_many(n): assert n == 1

    @pytest.mark.xfail
    def test_expected(): assert 0

    @pytest.fixture
    def ends_badly():
        yield
        raise ValueError

    def test_ends(ends_badly): pass

    class TestThing(unittest.TestCase):
        def test_skips(self): self.skipTest("so")
"""


def outcomes(pytester: pytest.Pytester, text: str, *words: str) -> Outcomes:
    """Run a file in a session of its own, and read its junit file."""
    pytester.makepyfile(test_it=text)
    report = pytester.path / "report.xml"
    report.unlink(missing_ok=True)
    family = ("-o", "junit_family=xunit1", f"--junitxml={report}", "-p", "no:cacheprovider")
    done = pytester.runpytest_subprocess(*family, *words)
    return read(report, int(done.ret))


def suite(name: str = "it") -> Suite:
    return Suite(name, f"{name}==1.0", built=True, sha256=("0",), needs=(), args=())


def test_each_outcome_is_read(pytester: pytest.Pytester) -> None:
    found = outcomes(pytester, TESTS)
    assert found.status == 1
    assert not found.far
    assert found.cases == {
        "test_it.py::test_it::test_passes": ("passed",),
        "test_it.py::test_it::test_fails": ("failed",),
        "test_it.py::test_it::test_many[1]": ("passed",),
        "test_it.py::test_it::test_many[2]": ("failed",),
        "test_it.py::test_it::test_expected": ("xfailed",),
        "test_it.py::test_it::test_ends": ("error",),
        "test_it.py::test_it.TestThing::test_skips": ("skipped",),
    }
    assert not list(compare(found, found))


def test_what_ran_far_away_says_so(pytester: pytest.Pytester) -> None:
    plain, far = outcomes(pytester, TESTS), outcomes(pytester, TESTS, *LOCAL.args)
    assert far.far == set(far.cases) == set(plain.cases)
    assert not list(compare(plain, far))
    assert Row("it", "local", far).good
    here = Row("it", "local", plain)
    assert not here.good
    assert "ran here: 6" in str(here)


def test_each_difference_is_found(pytester: pytest.Pytester) -> None:
    plain = outcomes(pytester, "def test_a(): pass\ndef test_b(): pass\ndef test_c(): pass")
    other = outcomes(pytester, "def test_a(): pass\ndef test_b(): assert 0\ndef test_d(): pass")
    assert list(map(str, compare(plain, other))) == [
        "exit status: plainly 0, far away 1",
        "test_it.py::test_it::test_b: plainly passed, far away failed",
        "test_it.py::test_it::test_c: plainly passed, far away not there",
        "test_it.py::test_it::test_d: plainly not there, far away passed",
    ]
    nothing = read(pytester.path / "absent.xml", 4)
    assert not Row("it", "plain", nothing).good
    assert len(list(compare(plain, nothing))) == 4


def test_what_is_explained_is_no_fault_and_must_be_seen() -> None:
    plain = Outcomes(0, {"a": ("passed",), "b": ("passed",)})
    other = Outcomes(0, {"a": ("failed",), "b": ("failed",)}, frozenset("ab"))
    found = list(compare(plain, other))
    known = [
        Explained("it", "a", ("local",), "so it is"),
        Explained("it", "c", ("local",), "it was"),
        Explained("it", "b", ("modal",), "there only"),
        Explained("another", "b", ("local",), "so is that"),
    ]
    said = verdict(LOCAL, suite(), found, known)
    assert [one.id for one in said.explained] == ["a"]
    assert [one.id for one in said.faults] == ["b"]
    assert [one.id for one in said.stale] == ["c"]
    row = Row("it", "local", other, tuple(found), said)
    assert not row.good
    assert "explained, and not seen: c" in str(row)
    whole = verdict(LOCAL, suite(), found, [Explained("it", "*", ("local",), "all of it")])
    assert whole.explained == tuple(found)
    assert not whole.faults
    unseen = verdict(LOCAL, suite(), (), [Explained("it", "*", ("local",), "all of it")])
    assert [one.id for one in unseen.stale] == ["*"]
    assert Row("it", "local", other, (), verdict(LOCAL, suite(), found[:1], known[:1])).good


def test_results_of_other_suites_stay(tmp_path: Path) -> None:
    suites = [suite("one"), suite("two")]
    passed, failed = Outcomes(0, {"a": ("passed",)}), Outcomes(1, {"a": ("failed",)})
    write([Row("two", PLAIN.name, passed)], suites, tmp_path)
    write([Row("one", PLAIN.name, passed)], suites, tmp_path)
    write([Row("two", PLAIN.name, failed)], suites, tmp_path)
    runs = json.loads((tmp_path / "results.json").read_text())["runs"]
    assert [(run["suite"], run["status"]) for run in runs] == [("one", 0), ("two", 1)]
    assert "| two | plain | 1 | 1 | 0 | 1 |" in (tmp_path / "results.md").read_text()


# what is committed


def test_the_list_is_pinned_whole() -> None:
    pytest_pin, suites = load_suites()
    assert len(suites) >= 10
    for one in suites:
        pins = [one.requirement, *one.needs]
        assert pytest_pin in pins
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
        assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in one.sha256)
        assert set(one.far) <= set(one.environ)
    with pytest.raises(KeyError, match="nobody"):
        load_suites(["nobody"])


def test_what_is_explained_is_of_a_suite() -> None:
    names = {one.name for one in load_suites()[1]}
    for one in load_explained():
        assert one.suite in names
        assert set(one.legs) <= {leg.name for leg in FAR}
        assert len(one.why) > len("flaky")


def test_results_are_of_the_suites_and_show_no_fault() -> None:
    here = Path(__file__).parent
    runs = json.loads((here / "results.json").read_text("utf-8"))["runs"]
    run = {one["suite"] for one in runs}
    names = [one.name for one in load_suites()[1] if one.name in run]
    legs = [PLAIN.name, *(leg.name for leg in FAR)]
    assert [(one["suite"], one["leg"]) for one in runs] == [(n, x) for n in names for x in legs]
    assert not [one for one in runs if one["differences"]]
    plain = [one["tests"] for one in runs if one["leg"] == PLAIN.name]
    assert len([tests for tests in plain if tests >= 150]) >= 10
    assert sum(plain) >= 2000


def test_a_run_has_no_variables_of_another_session(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("PYTEST_ADDOPTS", "REMOTEGPU_WORKER", "CI", "TOX_ENV_DIR", "MODAL_TOKEN_ID"):
        monkeypatch.setenv(name, "outer")
    found = surroundings(suite(), tmp_path, tmp_path / "bin" / "python")
    assert "outer" not in found.values()
    assert found["XDG_RUNTIME_DIR"] == str(tmp_path)
    assert found["PATH"].startswith(f"{tmp_path}/bin:")
