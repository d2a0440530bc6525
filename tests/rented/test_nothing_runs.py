"""Options with which no test runs: nothing is rented, and plain pytest shows the same."""

from __future__ import annotations

import re

import pytest

from loopback import LoopbackModal
from session.running import own_marker, run, said

T4 = "--remote=modal:T4"
PROJECT = """
    import pathlib, pytest

    HERE = pathlib.Path({here!r})

    @pytest.fixture(scope="module", params=[1, 2])
    def thing(request):
        "Holds a thing."
        (HERE / "set-up").touch()
        yield request.param

    @pytest.mark.gpu
    def test_one(thing): (HERE / "ran").touch()

    @pytest.mark.gpu
    @pytest.mark.skipif(True, reason="never")
    def test_never(thing): pass

    def test_here(thing): (HERE / "ran").touch()
"""
OPTIONS = [
    "--setup-plan",
    "--setup-plan -q",
    "--setup-plan -k one --gpu-required",
    "--setup-plan -o remotegpu_collect=far",
    "--collect-only",
    "--collect-only -q",
    "--fixtures",
    "--fixtures-per-test",
    "--markers",
    "--help",
    "--version",
    "--cache-show",
]


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """Have tests that leave files, in a project that an installed plugin does not touch."""
    pytester.makepyfile(PROJECT.format(here=str(pytester.path)))
    own_marker(pytester, "ini")
    return pytester


def shown(result: pytest.RunResult) -> tuple[int, list[str]]:
    """Give the exit status, and what is written apart from our own words and from times."""
    lines = [line for line in said(result).splitlines() if not line.startswith("remote: ")]
    return int(result.ret), [re.sub(r"\d+\.\d+s\b", "T", line).strip("= ") for line in lines]


@pytest.mark.parametrize("option", OPTIONS)
def test_nobody_is_asked(project: pytest.Pytester, service: LoopbackModal, option: str) -> None:
    words = option.split()
    plain = run(project, *(word for word in words if word != "--gpu-required"))
    far = run(project, T4, *words, "--remote-json=run.json", "--remote-artifacts=left")
    assert shown(far) == shown(plain)
    assert service.requests == []
    assert not {"set-up", "ran", "run.json"} & {path.name for path in project.path.iterdir()}


def test_processes_ask_nobody_either(project: pytest.Pytester, service: LoopbackModal) -> None:
    pytest.importorskip("xdist")
    far = run(project, T4, "-n2", "--setup-plan")
    assert far.ret == run(project, "-n2", "--setup-plan").ret
    assert service.requests == []


def test_fixtures_that_are_set_up_need_a_container(
    project: pytest.Pytester, service: LoopbackModal
) -> None:
    """As ``--setup-only`` does, which runs no test."""
    result = run(project, T4, "--setup-only", "-k", "one")
    assert result.ret == run(project, "--setup-only", "-k", "one").ret
    assert len(service.containers) == 1
    assert (project.path / "set-up").exists()
    assert not (project.path / "ran").exists()


@pytest.mark.parametrize("place", [".", "new/", "/proc/run.json"])
def test_a_record_that_can_not_be_written_is_refused_before_the_service_is_asked(
    project: pytest.Pytester, service: LoopbackModal, place: str
) -> None:
    result = run(project, T4, f"--remote-json={place}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--remote-json={place!r} can't be written: " in said(result)
    assert not service.requests
    assert not (project.path / "new").exists()
