"""``--remote=command:PREFIX``: what only a command does, which starts in the project's folder."""

from __future__ import annotations

import sys

import pytest

from session.running import said


@pytest.mark.parametrize("name", ["tempfile", "msgspec"])
def test_modules_of_the_project_do_not_stand_in_for_those_of_the_worker(
    name: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_REMOTEGPU_PRETEND_GPUS", "1")
    (pytester.path / f"{name}.py").write_text("raise RuntimeError('the wrong one')\n")
    pytester.makepyfile("import pytest\n@pytest.mark.gpu\ndef test_far(): pass\n")
    python = f"remotegpu_python={sys.executable}"
    result = pytester.runpytest_inprocess("--remote=command:env", "-o", python)
    assert "the wrong one" not in said(result)
    result.assert_outcomes(passed=1)
