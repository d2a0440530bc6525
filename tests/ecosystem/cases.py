"""What is tried with each plugin.

How a suite is shipped is said by the name of a leg only.
"""

from __future__ import annotations

from . import readers
from .running import Case

__all__ = ["AWAY", "CASES", "HERE"]

HERE, AWAY = "here", "away"
BOTH = (HERE, AWAY)

HYPOTHESIS = (
    r"Test took \d+\.\d+ms",
    r"Typical runtimes:.*",
    r"\(\d+\.\d+ seconds\)",
)
HTML = (r"\d+ ms\b", r"\d\d:\d\d:\d\d\b", r"-+ Generated html report: .* -+\n")
BENCHMARK = (r"(?m)^test_\w+(?:\[\d+\])?(?: \(\w+\))? +\d.*\d$", r"-{10,}", r"Name \(time in .*")
QUICK = ("--benchmark-min-rounds=2", "--benchmark-max-time=0.01")
COVERED = ("--cov=.", "--cov-report=json:cov.json", "--cov-report=term-missing")
MEMRAY = ("--memray", "--memray-bin-prefix=it")

CASES: tuple[Case, ...] = (
    # what is measured
    Case(
        "cov",
        ("pytest_cov",),
        "cov",
        (COVERED, ("--cov=lib", *COVERED[1:], "--cov-branch")),
        files={"cov.json": readers.coverage},
        legs=BOTH,
    ),
    Case(
        "cov append",
        ("pytest_cov",),
        "cov",
        ((*COVERED, "-k", "sign"), (*COVERED, "-k", "only", "--cov-append")),
        files={"cov.json": readers.coverage},
    ),
    Case(
        "cov of a package",
        ("pytest_cov",),
        "covsrc",
        (
            ("--cov=pkg", *COVERED[1:], "--cov-fail-under=60"),
            ("--cov=pkg", *COVERED[1:], "--cov-branch", "-n2", "-p", "xdist"),
        ),
        files={"cov.json": readers.coverage},
        legs=BOTH,
    ),
    Case(
        "cov of child processes",
        ("pytest_cov",),
        "covchild",
        ((*COVERED, "--cov-config=cover.ini"),),
        files={"cov.json": readers.coverage},
    ),
    Case(
        "cov xdist",
        ("pytest_cov", "xdist"),
        "cov",
        ((*COVERED, "-n2"),),
        files={"cov.json": readers.coverage},
        any_order=True,
    ),
    # how tests run
    Case("timeout", ("timeout",), "timeout", legs=BOTH),
    Case(
        "timeout of all",
        ("timeout",),
        "timeout",
        (("--timeout=0.4", "-o", "timeout_func_only=true", "-k", "not slow"),),
    ),
    Case("rerunfailures", ("rerunfailures",), "reruns", legs=BOTH),
    Case(
        "rerunfailures xunit1",
        ("rerunfailures",),
        "reruns",
        (("--reruns=1", "-o", "junit_family=xunit1", "-r", "aR"),),
    ),
    Case(
        "rerunfailures xdist",
        ("rerunfailures", "xdist"),
        "reruns",
        (("--reruns=1", "-n2", "-rR"),),
        any_order=True,
    ),
    Case("rerunfailures and sub-tests", ("rerunfailures",), "rerunsub"),
    Case(
        "randomly",
        ("randomly",),
        "random",
        (("--randomly-seed=7",), ("--randomly-seed=last",), ("--randomly-seed=11",)),
        legs=BOTH,
    ),
    Case(
        "randomly, order kept",
        ("randomly",),
        "random",
        (("--randomly-seed=3", "--randomly-dont-reorganize"),),
    ),
    Case(
        "randomly xdist",
        ("randomly", "xdist"),
        "random",
        (("--randomly-seed=7", "-n2"),),
        any_order=True,
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
        "hypothesis, its mark and its database",
        ("hypothesispytest",),
        "hypo",
        # the profile of CI, which hypothesis takes by itself there, has no database
        (("-m", "hypothesis", "-k", "not deadline", "--hypothesis-profile=default"),) * 2,
        files={".hypothesis/examples": readers.folders},
        varies=HYPOTHESIS,
        lacks=("hypothesis-statistics-.*",),
    ),
    Case("asyncio", ("asyncio",), "aio"),
    Case("asyncio, auto", ("asyncio",), "aio", (("--asyncio-mode=auto",),)),
    Case("anyio", ("anyio",), "anyio"),
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
    Case("picked", ("picked",), "picked", (("--picked",), ("--picked=first",)), git=("test_b.py",)),
    Case(
        "syrupy",
        ("syrupy",),
        "snapshots",
        (("--snapshot-update",), ()),
        environment={"SAID": "something"},
        files={"__snapshots__/test_snapshots.ambr": readers.text},
        varies=(r"-+ snapshot report summary -+\n(?:\d+ snapshots? .*\n)*",),
    ),
    Case("env", ("env",), "env", environment={"GIVEN": "outside"}),
    Case("dotenv", ("dotenv",), "dotenv", environment={"GIVEN": "outside"}),
    # what is shown
    Case("sugar", ("sugar",), "outcomes", (("--force-sugar",),), varies=(r"Results \(.*?s\)",)),
    Case("instafail", ("instafail",), "outcomes", (("--instafail",),)),
    # what is written
    Case("xunit1", (), "outcomes", (("-o", "junit_family=xunit1", "-o", "junit_logging=all"),)),
    Case(
        "xunit2",
        (),
        "outcomes",
        (("-o", "junit_family=xunit2", "-o", "junit_logging=system-out"),),
    ),
    Case("legacy", (), "outcomes", (("-o", "junit_family=legacy"),)),
    Case(
        "json-report",
        ("pytest_jsonreport",),
        "jsonreport",
        (("--json-report",),),
        files={".report.json": readers.json_report},
        legs=BOTH,
    ),
    Case(
        "json-report, outcomes",
        ("pytest_jsonreport",),
        "outcomes",
        (("--json-report", "--json-report-indent=2"),),
        files={".report.json": readers.json_report},
    ),
    Case(
        "json-report xdist",
        ("pytest_jsonreport", "xdist"),
        "jsonreport",
        (("--json-report", "-n1"),),
        files={".report.json": readers.json_report},
        any_order=True,
    ),
    Case(
        "html",
        ("html", "html_fixtures", "metadata"),
        "html",
        (("--html=out.html", "--self-contained-html"),),
        files={"out.html": readers.html},
        varies=HTML,
        legs=BOTH,
    ),
    Case(
        "html, outcomes",
        ("html", "html_fixtures", "metadata"),
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
        (("--alluredir=results",), ("--alluredir=results", "--clean-alluredir", "-k", "steps")),
        files={"results": readers.allure},
        legs=BOTH,
    ),
    Case(
        "benchmark",
        ("benchmark",),
        "bench",
        (
            ("--benchmark-json=b.json", "--benchmark-save=one", *QUICK),
            ("--benchmark-json=b.json", "--benchmark-compare", "--benchmark-histogram=h", *QUICK),
        ),
        files={"b.json": readers.benchmark, ".": readers.pictures},
        varies=BENCHMARK,
        legs=BOTH,
    ),
    Case(
        "memray",
        ("memray",),
        "memray",
        ((*MEMRAY, "--memray-bin-path=bins"),),
        files={"bins": readers.names},
    ),
    Case("memray, its own folder", ("memray",), "memray", (("--memray",),)),
    Case("memray, limits", ("memray",), "memray"),
)
