"""Reports that say no more than that a phase has passed go a short way, and come to the same."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_remotegpu.protocol import events, packing
from pytest_remotegpu.worker.bare import Bare
from pytest_remotegpu.worker.emit import ReportSender

from .running import CPU, run

TESTS = """
    import warnings
    import pytest

    @pytest.fixture
    def torn_down():
        yield
        print("written in the tear-down")

    def test_says_nothing(): pass
    @pytest.mark.parametrize("value", ["\\ud800", "é"])
    def test_has_an_odd_name(value): pass
    def test_prints(): print("something")
    def test_tears_down(torn_down): pass
    def test_fails(): assert not 1
    def test_skips(): pytest.skip("on purpose")
    @pytest.mark.xfail(reason="on purpose")
    def test_fails_on_purpose(): assert not 1
    @pytest.mark.xfail(reason="on purpose")
    def test_passes_after_all(): pass
    def test_has_a_property(record_property): record_property("name", 1)
    def test_warns(): warnings.warn("told")
    class TestMany:
        @pytest.mark.custom(1)
        def test_has_keywords(self): pass
"""
INI = "[pytest]\nmarkers = custom\n"
PHASES_WITH_SOMETHING = 10
"""That of prints (call and later), tear-down, failures, skip, both xfails, the property's."""


class Keeper:
    """Keeps the reports of a session, and what it was configured with."""

    def __init__(self) -> None:
        self.reports: list[pytest.TestReport] = []
        self.config: Any = None

    def pytest_configure(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)


class Sent:
    """Keeps events."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def put(self, event: events.Event) -> None:
        self.events.append(event)

    def flush(self) -> None:
        pass


def reports_of(pytester: pytest.Pytester) -> Keeper:
    pytester.makeini(INI)
    pytester.makepyfile(TESTS)
    keeper = Keeper()
    pytester.inline_run("-p", "no:cacheprovider", "-p", "no:remotegpu", plugins=[keeper])
    return keeper


def test_both_ways_make_the_same_event(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = reports_of(pytester)
    bare = Bare(keeper.config)
    short: list[events.Report] = []
    for report in keeper.reports:
        event = bare.event(7, report, None)
        if event is None:
            continue
        with monkeypatch.context() as patch:
            patch.setattr(Bare, "event", lambda *_: None)
            sent: Any = Sent()
            sender = ReportSender(sent, keeper.config, None)
            sender.send(7, report)
        assert sent.events == [event]
        short.append(event)
    assert len(short) == len(keeper.reports) - PHASES_WITH_SOMETHING


def test_keywords_travel_once_for_each_test(pytester: pytest.Pytester) -> None:
    keeper = reports_of(pytester)
    sent: Any = Sent()
    sender = ReportSender(sent, keeper.config, None)
    for report in keeper.reports[:6]:  # two tests
        if report.when == "setup":
            sender.begin()
        sender.send(0, report)
    assert [event.keywords is not None for event in sent.events] == [True, False, False] * 2


@pytest.mark.parametrize(
    "odd",
    [
        {"longrepr": "text"},
        {"sections": [("Captured stdout call", "x")]},
        {"user_properties": [("a", 1)]},
        {"outcome": "failed"},
        {"outcome": "rerun"},
        {"when": "collect"},
        {"duration": 1},
        {"start": None},
        {"keywords": {"a": True}},
        {"keywords": {"a": 2}},
        {"keywords": {1: 1}},
        {"keywords": ["a"]},
        {"keywords": None},
        {"keywords": 1},
        {"keywords": {}},
        {"of_a_plugin": 1},
        {"wasxfail": "reason"},
    ],
    ids=str,
)
def test_whatever_else_is_on_a_report_takes_the_long_way(
    pytester: pytest.Pytester, odd: dict[str, Any]
) -> None:
    keeper = reports_of(pytester)
    report = keeper.reports[0]
    bare = Bare(keeper.config)
    assert bare.event(0, report, None) is not None
    vars(report).update(odd)
    assert bare.event(0, report, None) is None


def test_a_plugin_that_makes_data_of_reports_makes_all(pytester: pytest.Pytester) -> None:
    keeper = reports_of(pytester)
    bare = Bare(keeper.config)
    assert bare.event(0, keeper.reports[0], None) is not None

    class Maker:
        def pytest_report_to_serializable(self) -> None:
            pass

    keeper.config.pluginmanager.register(Maker())
    assert bare.event(0, keeper.reports[0], None) is None


def test_a_plugin_that_reads_data_of_reports_reads_all(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        def pytest_report_from_serializable(config, data):
            print("READ", data["when"], data["outcome"])
        """
    )
    pytester.makepyfile("import pytest\n@pytest.mark.gpu\ndef test_it(): pass")
    result = run(pytester, CPU, "-s")
    result.assert_outcomes(passed=1)
    for when in ("setup", "call", "teardown"):
        result.stdout.fnmatch_lines([f"*READ {when} passed*"])


def test_the_event_says_what_pytest_makes_of_it(pytester: pytest.Pytester) -> None:
    keeper = reports_of(pytester)
    report = keeper.reports[0]
    event = Bare(keeper.config).event(0, report, None)
    assert event is not None
    data = packing.unpack_report(event, [], dict.fromkeys(report.keywords, 1))
    data |= {"nodeid": report.nodeid, "location": report.location}
    hook = keeper.config.hook
    assert data == hook.pytest_report_to_serializable(config=keeper.config, report=report)
