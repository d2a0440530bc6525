"""What the doctor says of Modal."""

from __future__ import annotations

from pathlib import Path

from pytest_remotegpu.doctor import FAIL, OK, WARN
from pytest_remotegpu.doctor.modal import check_token, check_version


def test_versions() -> None:
    assert check_version("1.6.4").state == OK
    for other in ("1.5.0", "1.60.0", "2.6"):
        assert check_version(other).state == FAIL
        assert "modal>=1.6,<1.7" in check_version(other).fix


def test_tokens(tmp_path: Path) -> None:
    path = tmp_path / "modal.toml"
    environ = {"MODAL_CONFIG_PATH": str(path)}
    assert check_token(environ).state == WARN
    path.write_text("")
    assert str(path) in check_token(environ).text
    assert check_token({"MODAL_TOKEN_ID": "a"}).state == FAIL
    assert check_token({"MODAL_TOKEN_ID": "a", "MODAL_TOKEN_SECRET": "b"}).state == OK
