"""The doctor's look at a far side: what it says, says wrongly, or does not say."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from pytest_remotegpu.doctor import far
from pytest_remotegpu.doctor.check import FAIL, OK, WARN, Check
from pytest_remotegpu.errors import SpecError
from pytest_remotegpu.protocol.hello import Hello


def states(checks: Iterable[Check]) -> list[str]:
    return [check.state for check in checks]


def test_hello_that_fits() -> None:
    here = Hello.here()
    fits = Hello.here(gpus=("0", "1"), host="box")
    checks = list(far.check_hello("ssh:box", here, fits))
    assert states(checks) == [OK, OK]
    assert "ssh:box: 2 GPUs, 0, 1" in checks[1].text
    assert states(far.check_hello("ssh:box", here, Hello.here(pretend=2))) == [OK, WARN]
    assert states(far.check_hello("ssh:box", here, Hello.here())) == [OK, FAIL]


def test_hello_that_does_not_fit() -> None:
    there = Hello(protocol=1, package="0.0.1", python="3.9", pytest="7.0", executable="/bin/py")
    checks = list(far.check_hello("ssh:box", Hello.here(), there))
    assert states(checks) == [FAIL] * 4
    assert checks[0].fix.startswith("/bin/py -m pip install pytest-remotegpu==")


def test_a_far_side_that_speaks() -> None:
    backend = far.open_backend("local:cpu:3", "")
    checks = list(far.examine(backend, os.environ))
    assert states(checks) == [OK, WARN]
    assert "local:cpu pretends 3 GPUs" in checks[1].text


def test_a_far_side_that_talks_nonsense(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho Welcome, dear user, to this machine\necho WHY >&2\n")
    python.chmod(0o755)
    checks = list(far.examine(far.open_backend("local:cpu", str(python)), os.environ))
    assert states(checks) == [FAIL]
    assert "wrote b'Welcome, dear user" in checks[0].text
    assert "WHY" in checks[0].text


def test_a_far_side_that_is_silent(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\ncat >&2\n")
    python.chmod(0o755)
    checks = list(far.examine(far.open_backend("local:cpu", str(python)), os.environ, 0.1))
    assert [check.text for check in checks] == ["local:cpu: no hello came within 0.1 s"]


def test_a_far_side_that_is_not_there() -> None:
    checks = list(far.examine(far.open_backend("local:cpu", "/nowhere/python"), os.environ))
    assert states(checks) == [FAIL]
    with pytest.raises(SpecError, match="names no backend"):
        far.open_backend("7", "")
