"""What is tried with each plugin.

How a suite is shipped is not said here.
"""

from __future__ import annotations

from . import readers
from .running import Case

__all__ = ["CASES"]

HYPOTHESIS = (
    r"Test took \d+\.\d+ms",
    r"Typical runtimes:.*",
    r"\(\d+\.\d+ seconds\)",
    r"\b[A-Za-z0-9+/=]{60,}",  # the same, encoded
)
HTML = (r"\d+ ms\b", r"\d\d:\d\d:\d\d\b", r"-+ Generated html report: .* -+\n")

BENCHMARK = (r"(?m)^test_\w+(?:\[\d+\])? +\d.*\d$", r"-{10,}", r"Name \(time in .*")

CASES: tuple[Case, ...] = (
    Case("timeout", ("timeout",), "timeout"),
    Case(
        "timeout off", ("timeout",), "timeout", (("--timeout=5", "-k", "not sleep and not slow"),)
    ),
    Case("reruns", ("rerunfailures",), "reruns"),
    Case(
        "reruns xunit1",
        ("rerunfailures",),
        "reruns",
        (("--reruns=1", "-o", "junit_family=xunit1", "-r", "aR"),),
    ),
    Case(
        "randomly",
        ("randomly",),
        "random",
        (("-p", "randomly", "--randomly-seed=7"), ("--randomly-seed=last",)),
    ),
    Case(
        "randomly off",
        ("randomly",),
        "random",
        (("--randomly-seed=3", "--randomly-dont-reorganize"),),
    ),
    Case("mock", ("pytest_mock",), "mock"),
    Case(
        "hypothesis",
        ("hypothesispytest",),
        "hypo",
        (("--hypothesis-show-statistics", "--hypothesis-profile=fixed"),),
        varies=HYPOTHESIS,
        lacks=("hypothesis-statistics-.*",),
    ),
    Case(
        "hypothesis seed",
        ("hypothesispytest",),
        "hypo",
        (("--hypothesis-seed=3", "-m", "hypothesis", "-k", "not deadline"),),
        varies=HYPOTHESIS,
        lacks=("hypothesis-statistics-.*",),
    ),
    Case("asyncio", ("asyncio",), "aio"),
    Case("asyncio auto", ("asyncio",), "aio", (("--asyncio-mode=auto",),)),
    Case("anyio", ("anyio",), "anyio"),
    Case("xunit1", (), "outcomes", (("-o", "junit_family=xunit1", "-o", "junit_logging=all"),)),
    Case(
        "xunit2", (), "outcomes", (("-o", "junit_family=xunit2", "-o", "junit_logging=system-out"),)
    ),
    Case("legacy", (), "outcomes", (("-o", "junit_family=legacy"),)),
    Case(
        "json",
        ("pytest_jsonreport",),
        "jsonreport",
        (("--json-report",),),
        files={".report.json": readers.json_report},
    ),
    Case(
        "json outcomes",
        ("pytest_jsonreport",),
        "outcomes",
        (("--json-report", "--json-report-indent=2"),),
        files={".report.json": readers.json_report},
    ),
    Case(
        "html",
        ("html", "html_fixtures", "metadata"),
        "html",
        (("--html=out.html", "--self-contained-html"),),
        files={"out.html": readers.html},
        varies=HTML,
    ),
    Case(
        "html outcomes",
        ("html", "metadata"),
        "outcomes",
        (("--html=out.html",),),
        files={"out.html": readers.html},
        varies=HTML,
    ),
    Case(
        "reportlog",
        ("pytest_reportlog",),
        "outcomes",
        (("--report-log=log.jsonl",),),
        files={"log.jsonl": readers.report_log},
    ),
    Case(
        "allure",
        ("allure_pytest",),
        "allure",
        (("--alluredir=results",),),
        files={"results": readers.allure},
    ),
    Case("sugar", ("sugar",), "outcomes", (("--force-sugar",),), varies=(r"Results \(.*?s\)",)),
    Case("instafail", ("instafail",), "outcomes", (("--instafail",),)),
    Case("picked", ("picked",), "picked", (("--picked",), ("--picked=first",)), git=("test_b.py",)),
    Case(
        "benchmark",
        ("benchmark",),
        "bench",
        (("--benchmark-json=b.json", "--benchmark-min-rounds=2", "--benchmark-max-time=0.01"),),
        files={"b.json": readers.benchmark},
        varies=BENCHMARK,
    ),
    Case(
        "memray",
        ("memray",),
        "memray",
        (("--memray", "--memray-bin-path=bins", "--memray-bin-prefix=it"),),
        files={"bins": readers.names},
    ),
    Case("memray limit", ("memray",), "memray"),
    Case("env", ("env",), "env", environment={"GIVEN": "outside"}),
    Case("dotenv", ("dotenv",), "dotenv", environment={"GIVEN": "outside"}),
    Case("order", ("pytest_order",), "order"),
    Case("dependency", ("dependency",), "depend"),
    Case(
        "repeat", ("repeat",), "repeat", (("--count=2",), ("--count=2", "--repeat-scope=session"))
    ),
    Case(
        "split",
        ("pytest-split",),
        "split",
        (("--splits=2", "--group=1"), ("--splits=2", "--group=2"), ("--store-durations",)),
        files={".test_durations": readers.keys},
    ),
)
