"""What is compared would be seen if it differed: in reports, and in each plugin's files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from parity.running import PLAIN

from . import readers
from .cases import CASES
from .running import Case, Plugged, Seen, run
from .test_ecosystem import check

CASE = next(case for case in CASES if case.name == "json-report")
NORMAL = Plugged((), ())


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Give one plain run."""
    return run(CASE, PLAIN, tmp_path_factory.mktemp("plain") / "0")[0]


def test_the_same_is_the_same(seen: Seen) -> None:
    check(seen, seen, CASE)


def test_another_file_is_seen(seen: Seen) -> None:
    text = json.dumps(seen.files[".report.json"]).replace('"passed"', '"skipped"', 1)
    other = replace(seen, files={".report.json": json.loads(text)})
    with pytest.raises(AssertionError, match=r"\.report\.json"):
        check(seen, other, CASE)


def test_another_status_is_seen(seen: Seen) -> None:
    other = replace(seen, pytest=replace(seen.pytest, status=0))
    with pytest.raises(AssertionError, match="exit status of process"):
        check(seen, other, CASE)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.varies], ids=lambda case: case.name
)
def test_what_may_vary_is_not_all(case: Case) -> None:
    """No pattern takes away a line that says how a test ended."""
    for line in ("test_a.py::test_one PASSED", "FAILED test_a.py::test_one - assert 1 == 2"):
        assert Plugged((), case.varies).text(line) == line
    assert all(re.compile(pattern) for pattern in case.varies)


def test_a_missing_result_of_allure_is_seen(tmp_path: Path) -> None:
    for number in range(2):
        name = f"{number}-result.json"
        (tmp_path / name).write_text(json.dumps({"name": f"test_{number}", "status": "passed"}))
    both = readers.allure(tmp_path, NORMAL)
    (tmp_path / "1-result.json").unlink()
    assert readers.allure(tmp_path, NORMAL) != both
