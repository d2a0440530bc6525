"""Files collected in the containers that run their tests: what is rented, paid for, and lost."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from loopback import LoopbackModal
from session.running import Started, run, said, until

FAR = ("--remote=modal:T4", "-o", "remotegpu_collect=far")
TESTS = """
    import os, time, pytest

    if "MODAL_TASK_ID" not in os.environ:
        raise ImportError("this file needs what only a container has")

    @pytest.mark.gpu
    @pytest.mark.parametrize("number", [1, 2])
    def test_passes(number, artifacts_dir):
        (artifacts_dir / "from.txt").write_text(os.environ["MODAL_TASK_ID"])

    @pytest.mark.gpu
    def test_fails(): assert 1 == 2
"""
LARGER = """
    import os, pytest
    assert "MODAL_TASK_ID" in os.environ

    @pytest.mark.gpu
    def test_small(): pass

    @pytest.mark.gpu(2)
    def test_large(): pass
"""
SLOW = """
    import pathlib, time, pytest

    with open({seen!r}, "a") as file:
        file.write("x")
    while pathlib.Path({seen!r}).stat().st_size <= {times}:
        time.sleep(0.01)

    @pytest.mark.gpu
    def test_one(): pass
"""
"""Its import takes for ever, so many times."""


def test_one_container_collects_and_runs(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """It is the one that is paid for, and that the most of the cost is said of."""
    pytester.makepyfile(test_far=TESTS, test_plain="def test_here(): pass")
    result = run(pytester, *FAR, "--remote-json=run.json", "--remote-max-cost=5")
    result.assert_outcomes(passed=3, failed=1)
    assert [each.gpu for each in service.containers] == ["T4:1"]
    data = json.loads((pytester.path / "run.json").read_text())
    assert len(data["workers"]) == 1
    assert data["workers"][0]["cost_usd"] > 0
    assert "at most $0.603, $0.590 an hour for 3600 s" in said(result)


def test_several_shapes(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """The runner of the smallest collects; no machine is rented for that alone."""
    pytester.makepyfile(test_far=TESTS, test_larger=LARGER)
    run(pytester, *FAR).assert_outcomes(passed=4, failed=1)
    assert sorted(str(each.gpu) for each in service.containers) == ["T4:1", "T4:2"]


def test_a_look_rents_nothing(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """What can be imported here is shown, and of the rest that it is not collected yet."""
    pytester.makepyfile(
        test_far=TESTS, test_both="import pytest\n@pytest.mark.gpu\ndef test_both(): pass"
    )
    result = run(pytester, *FAR, "--collect-only", "-q")
    assert result.ret == 0
    assert "test_both.py::test_both" in said(result)
    assert "not collected: test_far.py" in said(result)
    plan = run(pytester, *FAR, "--remote-plan")
    assert "not collected: test_far.py" in said(plan)
    pytester.makepyfile(test_vague="import not_here\n@not_here.needs\ndef test(): pass")
    vague = run(pytester, *FAR, "--collect-only", "-q", "test_vague.py")
    assert "not collected: test_vague.py" in said(vague)
    assert service.containers == []


LACKING = {
    "package": ("import not_here.part", "No module named 'not_here'"),
    "cause": (
        "try: import not_here\nexcept ImportError: raise RuntimeError('no luck')",
        "No module named 'not_here'",
    ),
    "by_hand": ("raise ImportError('needs a card')", "needs a card"),
    "skip": ("import pytest\npytest.importorskip('not_here')", "could not import 'not_here'"),
    "helper": ("import helper", "No module named 'not_here'"),
}
BROKEN = {
    "syntax": ("def broken(:", "SyntaxError"),
    "error": ("assert 1 == 2", "assert 1 == 2"),
    "typo_of_the_projects": ("from folder import hlper", "cannot import name 'hlper'"),
    "module_of_the_projects": ("import folder.hlper", "No module named 'folder.hlper'"),
    "typo_of_a_package": ("from pytest import fixtur", "cannot import name 'fixtur'"),
    "module_of_a_package": ("import pytest.fixtur", "No module named 'pytest.fixtur'"),
    "helper": ("import broken", "SyntaxError"),
}
MARKED = "\nimport pytest\n@pytest.mark.gpu\ndef test(): pass"


def _look(pytester: pytest.Pytester, *files: dict[str, tuple[str, str]]) -> str:
    pytester.makepyfile(**{"folder/__init__": "", "helper": "import not_here", "broken": "def (:"})
    sources = {f"test_{name}": source for each in files for name, (source, _) in each.items()}
    pytester.makepyfile(**{name: f"{source}{MARKED}" for name, source in sources.items()})
    result = run(pytester, *FAR, "--collect-only", "-q")
    status = pytest.ExitCode
    assert result.ret == (status.INTERRUPTED if BROKEN in files else status.NO_TESTS_COLLECTED)
    return said(result)


def test_a_look_says_what_only_another_machine_can_import(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    text = _look(pytester, LACKING)
    for name, (_, why) in LACKING.items():
        [line] = [line for line in text.splitlines() if f"not collected: test_{name}.py" in line]
        assert why in line
    assert service.containers == []


def test_a_look_is_red_for_what_no_machine_can_import(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """Nobody takes a mistake for a package that is not here."""
    text = _look(pytester, BROKEN)
    assert "not collected" not in text
    for name, (_, why) in BROKEN.items():
        assert f"ERROR test_{name}.py" in text
        assert why in text
    assert service.containers == []


def test_a_cap_that_is_too_low_rents_nothing(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(test_far=TESTS)
    result = run(pytester, *FAR, "--remote-max-cost=0.0001")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--remote-max-cost" in said(result)
    assert service.containers == []


def test_the_cap_holds_while_files_are_collected(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """An import that does not end is an error of collection, once that is what may be paid."""
    pytester.makepyfile(test_far=SLOW.format(seen=str(pytester.path / "seen"), times=9))
    options = ("--remote-run-timeout=3", "-o", "remotegpu_idle=2")
    result = run(pytester, *FAR, *options)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=1)
    assert "the run limit of 3 s (--remote-run-timeout) is reached" in said(result)
    service.wait_until(lambda: all(each.current is None for each in service.running), 15)


@pytest.mark.parametrize("how", ["preempt", "lose"])
def test_a_container_that_is_lost_meanwhile(
    pytester: pytest.Pytester, service: LoopbackModal, how: str
) -> None:
    """Another one collects, and the summary says so."""
    seen = pytester.path / "seen"
    pytester.makepyfile(test_far=SLOW.format(seen=str(seen), times=1))
    with Started(pytester, *FAR) as session:
        assert until(seen.exists)
        [busy] = [each for each in service.running if each.current is not None]
        getattr(service, how)(busy)
        assert session.end() == 0, session.text
    assert re.search(r"was (taken away|lost) while it collected", session.text), session.text
    assert "1 passed" in session.text


def test_conftests_that_only_a_container_can_load(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """One container collects all, and runs what has no mark beside what has one."""
    pytester.makeconftest("import os\nassert 'MODAL_TASK_ID' in os.environ")
    pytester.makepyfile(test_far=TESTS, test_plain="def test_too(): pass")
    result = run(pytester, "--remote=modal:T4", "-o", "remotegpu_conftest=far")
    result.assert_outcomes(passed=3, failed=1)
    assert [each.gpu for each in service.containers] == ["T4:1"]
    assert "at most $0.603, $0.590 an hour for 3600 s" in said(result)


def test_several_processes(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile(test_far=TESTS)
    result = run(pytester, *FAR, "-n2")
    result.assert_outcomes(passed=2, failed=1)
    assert [each.gpu for each in service.containers] == ["T4:1", "T4:1"]
    kept = Path(pytester.path).glob(".pytest_cache/d/remotegpu/artifacts/*/from.txt")
    assert {path.read_text() for path in kept} <= {each.id for each in service.containers}
