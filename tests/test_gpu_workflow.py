"""The workflow for GPU tests: which job may what, and the command that it runs.

What the scripts decide is tested in ``unit/test_gate.py`` and ``unit/test_run_page.py``.
Knows the file as text.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import workflows
from pytest_remotegpu.backends.modal import table

TEXT = workflows.read("gpu-tests.yml")
SHA = "${{ needs.gate.outputs.sha }}"
JOBS = workflows.split(TEXT)


def scripts(job: str) -> list[str]:
    """Return what a job has shells run."""
    return workflows.scripts(JOBS[job])


def test_jobs_are_the_ones_that_are_looked_at_here() -> None:
    assert list(JOBS) == ["disarm", "gate", "gpu"]
    assert [len(scripts(job)) for job in JOBS] == [1, 1, 4]


@pytest.mark.parametrize(
    ("job", "permissions"),
    [
        ("disarm", {"contents": "read", "pull-requests": "write"}),
        ("gate", {"contents": "read", "pull-requests": "read"}),
        ("gpu", {"contents": "read"}),
    ],
)
def test_each_job_may_what_it_needs(job: str, permissions: dict[str, str]) -> None:
    assert workflows.permissions(JOBS[job]) == permissions


@pytest.mark.parametrize("job", ["disarm", "gate"])
def test_jobs_with_rights_run_the_base_branch_only(job: str) -> None:
    text = JOBS[job]
    assert re.findall(r"uses: ([\w/-]+)@", text) == ["actions/checkout"]
    assert not re.search(r"\b(ref|repository|secrets|environment)\b[:.]", text)
    assert "head" not in text
    assert "unsafe" not in text
    (script,) = scripts(job)
    assert re.fullmatch(r"python3 -I \.ci/gate\.py (judge|disarm)", script.strip())


def test_secrets_belong_to_the_environment_of_the_last_job() -> None:
    text = JOBS["gpu"]
    assert TEXT.count("secrets.") == text.count("secrets.") == 4
    assert len(re.findall(r"^          MODAL_TOKEN_\w+: \$\{\{ secrets\.", text, re.MULTILINE)) == 4
    assert "\n    environment: gpu-tests\n" in text
    assert "\n    needs: [gate]\n    if: needs.gate.outputs.allowed == 'true'\n" in text


def test_what_is_checked_out_is_what_the_gate_has_judged() -> None:
    assert re.findall(r"\bref: (.*)", JOBS["gpu"]) == [SHA]
    assert JOBS["gpu"].count("actions/checkout@") == 1
    assert "github.event" not in JOBS["gpu"]
    assert "github.head" not in TEXT


def test_nothing_is_cached() -> None:
    assert "cache" not in "".join(JOBS.values())


@pytest.mark.parametrize("job", JOBS)
def test_no_shell_sees_text_that_is_put_into_it(job: str) -> None:
    assert [script for script in scripts(job) if "${{" in script] == []


def test_versions_do_not_cancel_each_other() -> None:
    groups = re.findall(r"group: (.*)", JOBS["gpu"])
    assert [("outputs.number" in each, "matrix.python" in each) for each in groups] == [
        (True, True)
    ]
    assert not re.search(r"^concurrency:", TEXT, re.MULTILINE)


def test_types_to_choose_from_are_known() -> None:
    (options,) = re.findall(r"options: \[(.*)\]", TEXT)
    assert [name for name in options.split(", ") if table.find(name) is None] == []


@pytest.mark.skipif(sys.platform == "win32", reason="the job runs on Linux")
@pytest.mark.parametrize(
    ("markers", "keywords", "selection"),
    [
        ("gpu", "", ["-mgpu"]),
        ("", "", []),
        (
            "gpu and not slow",
            "a or $(touch owned)",
            ["-mgpu and not slow", "-ka or $(touch owned)"],
        ),
        ("gpu", "--remote-max-cost=999", ["-mgpu", "-k--remote-max-cost=999"]),
        ("gpu", "`touch owned`; \"' *", ["-mgpu", "-k`touch owned`; \"' *"]),
    ],
)
def test_pytest_takes_the_place_of_the_shell(
    tmp_path: Path, markers: str, keywords: str, selection: list[str]
) -> None:
    (script,) = [each for each in scripts("gpu") if "pytest" in each]
    told = {
        "TESTS": "tests/of mine",
        "GPU": "T4",
        "MARKERS": markers,
        "KEYWORDS": keywords,
        "MAX_COST": "1",
    }
    pid, arguments = workflows.run(script, "python", tmp_path, told)
    assert pid  # so a signal for the shell is a signal for pytest
    assert arguments == [
        "-m",
        "pytest",
        "tests/of mine",
        *selection,
        "--remote=modal:T4",
        "--remote-ephemeral",
        "--gpu-required",
        "--remote-max-cost=1",
        "--remote-json=/temp/run.json",
    ]
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("step", ["End what is left", "Summary"])
def test_steps_of_the_end_run_after_a_cancelled_one(step: str) -> None:
    _, _, rest = JOBS["gpu"].partition(f"- name: {step}\n")
    assert rest.lstrip().startswith("if: always() && steps.test.outcome != 'skipped'\n")
