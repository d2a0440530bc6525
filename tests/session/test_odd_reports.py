"""What tests and plugins put on a report, of whatever type: it costs no other test its verdict."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from .running import CPU, said

PLUGIN = """
    import pytest

    class Broken:
        def __str__(self):
            raise ValueError("no text")

    class Odd:
        def toterminal(self, writer):
            raise RuntimeError("not shown")

    class Report(pytest.TestReport):
        pass

    def pytest_configure(config):
        config.addinivalue_line("markers", "put(name, value): on the report")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(item, call):
        report = yield
        mark = item.get_closest_marker("put")
        if mark is not None and call.when == "call":
            setattr(report, mark.args[0], mark.args[1])
        return report
"""
TESTS = """
    import datetime
    import pathlib
    import pytest
    from conftest import Broken, Odd, Report

    pytestmark = pytest.mark.gpu
    PUT = [
        ("user_properties", value) for value in (
            [(3, 4)], [(("a", 1), 4)], [(Broken(), Broken())], [(1, 2, 3)], [5, "ab", None], None,
            (("a", 1),), 5, {"a": 1}, [("a", [0] * 200_000)], [("a", 1)] * 30_000,
        )
    ] + [
        ("sections", value) for value in (
            None, 5, [(1, 2)], [("a", "b", "c"), "x", 5], [("x", Broken())],
        )
    ] + [
        ("duration", value) for value in (
            None, float("nan"), float("inf"), "long", Broken(), datetime.timedelta(1), 10**400,
        )
    ] + [
        ("keywords", value) for value in (None, 5, ["a"], {3: 4}, {Broken(): 1})
    ] + [
        ("longrepr", value) for value in (
            5, Broken(), Odd(), ["a"], {"reprcrash": 1, "reprtraceback": 2},
            "reprcrash reprtraceback", ("reprcrash", "reprtraceback"), "x" * 20_000_000,
        )
    ] + [
        ("more", value) for value in (
            Broken(), object(), pathlib.Path("x"), [[["x"] * 1000] * 1000], "y" * 20_000_000,
            b"y" * 20_000_000, [10**4000] * 10_000,
        )
    ] + [("start", "now"), ("stop", None), ("__class__", Report), ("toterminal", 5)]
    put = pytest.mark.parametrize(
        ("name", "value"),
        [pytest.param(*put, marks=pytest.mark.put(*put), id=f"{put[0]}-{n}")
         for n, put in enumerate(PUT)],
    )

    @put
    def test_passes(name, value): pass

    @put
    def test_fails(name, value): assert 0

    @put
    def test_skips(name, value): pytest.skip("why")

    @pytest.mark.put("wasxfail", 5)
    def test_odd_xfail(): pytest.skip("why")

    def test_after(): pass
"""
PUT = 11 + 5 + 7 + 5 + 8 + 7 + 4


def outcomes(xml: str) -> dict[str, str]:
    """Give what a junit file has for each test."""
    return {
        case.get("name", ""): ",".join(child.tag for child in case if child.tag != "properties")
        for case in ET.fromstring(xml).iter("testcase")  # noqa: S314 -- written by this very test
    }


def test_anything_on_a_report_leaves_all_verdicts_alone(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(PLUGIN)
    pytester.makepyfile(test_it=TESTS)
    result = pytester.runpytest_inprocess(CPU, "--junitxml=out.xml", "--tb=line", "-rfEsx")
    result.assert_outcomes(passed=PUT + 1, failed=PUT, skipped=PUT, xfailed=1)
    text = said(result)
    assert "broke the protocol" not in text
    assert "not run" not in text
    assert "nan" not in text.partition("remote summary")[2]
    assert text.count("travels as it is: ") == 1
    found = outcomes((pytester.path / "out.xml").read_text(encoding="utf-8"))
    assert len(found) == 3 * PUT + 2
    for name, outcome in found.items():
        assert ("failure" in outcome, "skipped" in outcome) == (
            "test_fails" in name,
            "test_skips" in name or "xfail" in name,
        )


@pytest.mark.parametrize("outcome", ["'weird'", "'retried'", "5", "None"])
def test_an_outcome_of_another_plugin_decides_nothing(
    outcome: str, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(PLUGIN)
    pytester.makepyfile(f"""
        import pytest

        pytestmark = pytest.mark.gpu

        @pytest.mark.put("outcome", {outcome})
        def test_odd(): pass

        def test_after(): pass
    """)
    result = pytester.runpytest_inprocess(CPU)
    result.assert_outcomes(passed=1, failed=1)
    assert "without a report of each phase" in said(result)


def test_a_report_between_those_of_the_phases_is_shown_and_counts_for_nothing(
    pytester: pytest.Pytester,
) -> None:
    """As plugins that repeat a test at once write one for each attempt."""
    pytester.makeconftest("""
        import pytest

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport(item, call):
            report = yield
            if call.when == "call":
                early = pytest.TestReport.from_item_and_call(item, call)
                early.outcome = "retried"
                item.ihook.pytest_runtest_logreport(report=early)
            return report

        def pytest_report_teststatus(report):
            if report.outcome == "retried":
                return "retried", "R", "RETRIED"
    """)
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_it(): pass
    """)
    result = pytester.runpytest_inprocess(CPU, "-v")
    result.stdout.fnmatch_lines(
        ["*::test_it RETRIED*", "*::test_it PASSED*", "*1 passed, 1 retried*"]
    )


def test_texts_of_any_length_cost_no_other_test_its_verdict(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import logging
        import warnings
        import pytest

        pytestmark = pytest.mark.gpu
        LONG = "x" * 20_000_000

        def test_assertion(): assert 0, LONG

        def test_property(record_property): record_property("a", LONG)

        def test_attribute(record_xml_attribute): record_xml_attribute("a", LONG)

        def test_warning(): warnings.warn(LONG)

        def test_many_warnings():
            for number in range(400): warnings.warn(f"{number}{LONG[:90_000]}")

        def test_log(): logging.getLogger().warning(LONG)

        def test_odd_log():
            logging.getLogger().handle(logging.makeLogRecord({"msg": "odd", "levelno": 30}))

        def test_after(): pass
    """)
    result = pytester.runpytest_inprocess(
        CPU, "--log-file=log", "--junitxml=out.xml", "--disable-warnings", "--tb=no"
    )
    text = said(result)
    assert "7 passed" in text
    assert "1 failed" in text
    assert "assertion" in text
    assert "[cut here: more than 1 MiB]" in (pytester.path / "log").read_text(encoding="utf-8")


@pytest.mark.parametrize("status", ["'3'", "2.5", "object()"])
def test_an_odd_exit_status_ends_the_session_and_is_no_success(
    status: str, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(f"""
        import pytest

        pytestmark = pytest.mark.gpu

        def test_before(): pass

        def test_exit(): pytest.exit("enough", returncode={status})
    """)
    result = pytester.runpytest_subprocess(CPU, timeout=40)
    text = said(result)
    assert result.ret == 1
    assert "1 passed" in text
    assert "enough" in text
