"""What the doctor says of Modal without asking it."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

from pytest_remotegpu.backends.modal import table
from pytest_remotegpu.doctor import FAIL, OK, WARN
from pytest_remotegpu.doctor.check import Check
from pytest_remotegpu.doctor.modal import check_folder, check_prices, check_token, check_version

ONE = '[work]\ntoken_id = "ak-hidden"\ntoken_secret = "as-hidden"\n'
TWO = ONE + '[home]\ntoken_id = "ak-hidden"\ntoken_secret = "as-hidden"\nenvironment = "dev"\n'


def test_versions() -> None:
    assert check_version("1.6.4").state == OK
    for other in ("1.5.0", "1.60.0", "2.6"):
        assert check_version(other).state == FAIL
        assert "modal>=1.6,<1.7" in check_version(other).fix


def token(tmp_path: Path, text: str | None, **environ: str) -> list[Check]:
    path = tmp_path / "modal.toml"
    if text is not None:
        path.write_text(text)
    found = list(check_token({"MODAL_CONFIG_PATH": str(path), **environ}))
    assert "hidden" not in "".join(each.text + each.fix for each in found)
    return found


@pytest.mark.parametrize(
    ("text", "environ", "state", "words"),
    [
        (None, {}, WARN, "there is none"),
        ("", {}, WARN, "there is none"),
        (ONE, {"MODAL_PROFILE": "work"}, OK, "from profile 'work' in "),
        (ONE.replace("work", "default"), {}, OK, "from profile 'default' in "),
        (ONE + "active = true\n", {}, OK, "from profile 'work' in "),
        (ONE, {"MODAL_PROFILE": "other"}, FAIL, "names 'other', and there is 'work'"),
        (TWO, {}, FAIL, "none of 'work', 'home' in .* is active"),
        (TWO, {"MODAL_PROFILE": "home"}, OK, "from profile 'home' in "),
        (TWO.replace("env", "active = true\nenv"), {}, OK, "from profile 'home' in "),
        (
            ONE + "active = true\n" + TWO[len(ONE) :] + "active = true\n",
            {},
            FAIL,
            "several that are",
        ),
        ('token_id = "ak-hidden"\n', {}, FAIL, "outside of a"),
        ("[work\n", {}, FAIL, "can't be read"),
        ('[default]\ntoken_id = "ak-hidden"\n', {}, FAIL, "MODAL_TOKEN_SECRET is missing"),
        (None, {"MODAL_TOKEN_ID": "hidden"}, FAIL, "half of it is from MODAL_TOKEN_ID"),
        (
            None,
            {"MODAL_TOKEN_ID": "hidden", "MODAL_TOKEN_SECRET": "hidden"},
            OK,
            "from MODAL_TOKEN_ID and MODAL_TOKEN_SECRET",
        ),
        (
            None,
            {"MODAL_OAUTH_REFRESH_TOKEN": "hidden", "MODAL_OAUTH_CLIENT_ID": "hidden"},
            OK,
            "from MODAL_OAUTH_REFRESH_TOKEN and",
        ),
    ],
)
def test_tokens(
    tmp_path: Path, text: str | None, environ: dict[str, str], state: str, words: str
) -> None:
    check = token(tmp_path, text, **environ)[0]
    assert check.state == state
    assert re.search(words, check.text), check.text
    assert bool(check.fix) is (state != OK)


def test_environments(tmp_path: Path) -> None:
    assert "is dev, from profile 'home'" in token(tmp_path, TWO, MODAL_PROFILE="home")[1].text
    named = token(tmp_path, TWO, MODAL_PROFILE="home", MODAL_ENVIRONMENT="ci")[1].text
    assert "is ci, from MODAL_ENVIRONMENT" in named
    assert "default one" in token(tmp_path, TWO, MODAL_PROFILE="work")[1].text


def test_a_folder_by_the_sdks_name(tmp_path: Path) -> None:
    assert list(check_folder(tmp_path)) == []
    (tmp_path / "modal").mkdir()
    (tmp_path / "modal.py").touch()
    assert [each.state for each in check_folder(tmp_path)] == [OK, OK]


def test_the_age_of_prices() -> None:
    read = dt.date.fromisoformat(table.DATE)
    assert check_prices(read).text.endswith(f"of {table.DATE}, 0 days old")
    old = check_prices(read + dt.timedelta(days=400))
    assert old.state == WARN
    assert "400 days old" in old.text
    assert "remotegpu_prices" in old.fix
