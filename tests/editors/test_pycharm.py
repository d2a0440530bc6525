"""What PyCharm is told of shipped tests, beside what it is told of the same tests here.

Its reporter is the real one, from PyPI; the command line and the variables are those with which
PyCharm's own runner starts pytest.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from session.running import CPU, run

pytest.importorskip("teamcity", reason="needs: pip install teamcity-messages")

PLAIN = ("-p", "no:cacheprovider", "-p", "no:randomly")
FAR = (*PLAIN, CPU, "--remote-all")
THERE = (*FAR, "-o", "remotegpu_collect=far", "-o", "remotegpu_files=*.py")
PROJECT = """
    import unittest

    import pytest


    class TestOuter:
        def test_speaks(self):
            print("no newline", end="")

        class TestInner:
            @pytest.mark.parametrize("value", [1, 2])
            def test_value(self, value):
                assert value == 1


    @pytest.mark.parametrize("name", ["a.b", "x::y", "sp ace[]", "|'", "\\u00e9"])
    def test_name(name):
        print(f"told {name}")


    def test_fails():
        print("before")
        raise ValueError("no\\nnumber")


    def test_equal():
        assert {"loss": [0.5, 1.0]} == {"loss": [0.5, 2.0]}


    def test_equal_text():
        assert "one\\ntwo" == "one\\n|'three"


    class Odd:
        def __repr__(self):
            raise RuntimeError("not shown")


    def test_odd():
        assert Odd() == 1


    def test_compares_before():
        with pytest.raises(AssertionError):
            assert [1] == [2]
        raise ValueError("other")


    def test_compares_before_and_passes():
        with pytest.raises(AssertionError):
            assert [3] == [4]


    @pytest.mark.skip(reason="not today")
    def test_skipped():
        pass


    def test_skips():
        pytest.skip("not yet")


    @pytest.mark.xfail(reason="known")
    def test_xfails():
        raise ValueError


    @pytest.mark.xfail(strict=True)
    def test_xpasses():
        pass


    @pytest.fixture
    def fails_before():
        print("set up")
        raise ValueError("before")


    @pytest.fixture
    def fails_after():
        yield
        print("torn down")
        raise ValueError("after")


    def test_without_setup(fails_before):
        pass


    def test_without_teardown(fails_after):
        pass


    class TestCase(unittest.TestCase):
        def test_method(self):
            self.fail("of a case")
"""
SUBTESTS = """
    import pytest

    def test_parts(subtests):
        for number in range(3):
            with subtests.test(number=number):
                assert number != 1, "one"
"""


class Message(NamedTuple):
    """One message of the reporter, without what differs from run to run."""

    kind: str
    values: dict[str, str]


MESSAGE = re.compile(r"##teamcity\[(\w+)((?: \w+='(?:[^'|]|\|.)*')*)\]")
VALUE = re.compile(r" (\w+)='((?:[^'|]|\|.)*)'")


def messages(text: str) -> list[Message]:
    """Read all messages; what looks like one and is not whole is an error."""
    found = list(MESSAGE.finditer(text))
    assert len(found) == text.count("##teamcity["), text
    return [Message(each[1], _values(each[2])) for each in found]


def _values(text: str) -> dict[str, str]:
    values = dict(VALUE.findall(text))
    del values["timestamp"]
    if "duration" in values:
        assert int(values["duration"]) < 60_000
        values["duration"] = "some"
    return {name: re.sub(r"0x[0-9a-f]+", "0x", value) for name, value in values.items()}


@pytest.fixture(autouse=True)
def _as_pycharm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAMCITY_VERSION", "LOCAL")
    monkeypatch.setenv("_JB_PPRINT_PRIMITIVES", "1")
    monkeypatch.setenv("PYCHARM_HOSTED", "1")


def ids(told: list[Message], kind: str) -> list[str]:
    """Name the tests of all messages of a kind, in order."""
    return [message.values["name"] for message in told if message.kind == kind]


QUIET = ("--no-header", "--no-summary", "-q")
CASES = {
    "its runner": QUIET,
    "its runner, unbuffered": (*QUIET, "-s"),
    "by option": ("--teamcity",),
    "ended early": (*QUIET, "-x"),
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_same_messages_in_the_same_order(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_all=PROJECT)
    plain, far = (messages(run(pytester, *which, *options).stdout.str()) for which in (PLAIN, FAR))
    assert len(ids(plain, "testFinished")) > 2
    assert far == plain
    assert messages(run(pytester, *THERE, *options).stdout.str()) == plain


@pytest.mark.skipif(not hasattr(pytest, "Subtests"), reason="pytest 9.0 has sub-tests")
def test_same_messages_for_subtests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUBTESTS)
    plain, far = (messages(run(pytester, *which, *QUIET).stdout.str()) for which in (PLAIN, FAR))
    assert ids(plain, "testFailed")
    assert [message.values.get("details") for message in far] == [
        message.values.get("details") for message in plain
    ]
    assert [message.kind for message in far] == [message.kind for message in plain]


def test_one_tree_of_tests_here_and_there(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        def test_here():
            assert [1] == [2]

        @pytest.mark.gpu
        def test_there():
            raise ValueError("of its own")

        @pytest.mark.gpu
        @pytest.mark.parametrize("value", [1, 2])
        def test_values(value):
            pass
    """)
    told = messages(run(pytester, CPU, *QUIET).stdout.str())
    every = ids(told, "testStarted")
    assert len(every) == len(set(every)) == 4
    assert sorted(ids(told, "testFinished")) == sorted(every)
    assert [m.values["count"] for m in told if m.kind == "testCount"] == ["4"]
    failed = {m.values["name"].rpartition(".")[2]: m.values for m in told if m.kind == "testFailed"}
    assert failed["test_here"]["type"] == "comparisonFailure"
    assert "of its own" in failed["test_there"]["details"]
    assert not failed["test_there"].keys() & {"type", "expected", "actual"}


def test_a_crash_fails_one_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os
        import pytest

        @pytest.mark.gpu
        def test_before(): pass

        @pytest.mark.gpu
        def test_crash():
            print("last words", flush=True)
            os.abort()

        @pytest.mark.gpu
        def test_after(): pass
    """)
    told = messages(run(pytester, CPU, *QUIET).stdout.str())
    order = [name.rpartition(".")[2] for name in ids(told, "testFinished")]
    assert order == ["test_before", "test_crash", "test_after"]
    (failed,) = (message for message in told if message.kind == "testFailed")
    assert failed.values["name"].endswith("test_crash")
    assert "SIGABRT" in failed.values["details"]


def test_one_message_a_test_with_xdist(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.parametrize("value", range(4))
        def test_value(value):
            print("told")
            assert value

        def test_skips():
            pytest.skip("not yet")
    """)
    plain, far = (
        messages(run(pytester, *which, *QUIET, "-n", "2").stdout.str()) for which in (PLAIN, FAR)
    )
    for kind in ("testStarted", "testFailed", "testIgnored", "testFinished"):
        assert sorted(ids(far, kind)) == sorted(ids(plain, kind))
    assert sorted(ids(far, "testStarted")) == sorted(set(ids(far, "testStarted")))


def test_nothing_of_ours_on_a_line_with_a_message(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu
        @pytest.mark.parametrize("value", [1, 2])
        def test_there(value): print("no newline", end="")
    """)
    text = run(pytester, CPU, "-s", *QUIET, "--remote-debug", "--remote-timeline").stdout.str()
    assert len(ids(messages(text), "testFinished")) == 2
    assert "\r" not in text
    ours = [line for line in text.splitlines() if "remote" in line and "##teamcity" in line]
    assert ours == []
