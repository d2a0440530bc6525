"""Packages that are installed here from folders beside the project are found in a container."""

from __future__ import annotations

import pytest

from editable import Around, uses
from loopback import LoopbackModal
from session.running import run, said

T4 = "--remote=modal:T4"


def test_they_travel(
    pytester: pytest.Pytester, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In no image: nothing is built or deployed when they change."""
    around = Around(pytester, monkeypatch)
    first, second = around.library("first"), around.library("second")
    around.environment.install("first", first, entry=first / "src")
    around.environment.install("second", second, mapping={"second": second / "src" / "second"})
    pytester.makepyfile(uses("first", "second"))
    result = run(pytester, T4)
    result.assert_outcomes(passed=1)
    (second / "src" / "second" / "__init__.py").write_text("VALUE = 3\n", encoding="utf-8")
    changed = run(pytester, T4)
    changed.assert_outcomes(failed=1)
    assert "3 == 'second'" in said(changed)
    assert len(service.deploys) == 1
    assert not any(str(around.folder).encode() in data for data in service.world.files.values())


def test_they_travel_with_several_processes(
    pytester: pytest.Pytester, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xdist")
    around = Around(pytester, monkeypatch)
    lib = around.library("lib")
    around.environment.install("lib", lib, entry=lib / "src")
    text = uses("lib")
    pytester.makepyfile(test_a=text, test_b=text)
    run(pytester, "-n2", T4).assert_outcomes(passed=2)
    assert len(service.containers) == 2
