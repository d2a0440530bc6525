"""Each cause for which no test can run: the doctor sees it as a session does, with its way out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from loopback import LoopbackModal
from pytest_remotegpu.backends.base import Environment, Site
from pytest_remotegpu.backends.modal import examining, make
from pytest_remotegpu.doctor import FAIL, OK, WARN, far
from pytest_remotegpu.doctor.check import Check
from pytest_remotegpu.errors import FarSideError, SpecError
from pytest_remotegpu.gpu import Shape
from session.running import run, said

from . import test_faults as harms

T4 = "--remote=modal:T4"
TEST = """
    import pytest

    @pytest.mark.gpu
    def test_one(): pass
"""
SITE = Path(sysconfig.get_paths()["purelib"])
Harm = Callable[[LoopbackModal, pytest.MonkeyPatch, Path], None]


def look(wait: float = 60.0) -> list[Check]:
    """Give what the doctor says of the far side, apart from what it says of this host."""
    return list(far.look("modal:T4", "", os.environ, wait))


def files(text: str, *, profile: str = "") -> Harm:
    """Have no token but in a file."""

    def harm(_service: LoopbackModal, patch: pytest.MonkeyPatch, folder: Path) -> None:
        path = folder / "modal.toml"
        path.write_text(text)
        patch.setenv("MODAL_CONFIG_PATH", str(path))
        patch.delenv("MODAL_TOKEN_ID")
        patch.delenv("MODAL_TOKEN_SECRET")
        if profile:
            patch.setenv("MODAL_PROFILE", profile)

    return harm


def newer_sdk(_service: LoopbackModal, patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have a version of the SDK that nobody has tried."""
    home = folder / "newer" / "modal-1.9.0.dist-info"
    home.mkdir(parents=True)
    (home / "METADATA").write_text("Metadata-Version: 2.1\nName: modal\nVersion: 1.9.0\n")
    for name in ("modal", "modal_proto", "modal_version"):
        (home.parent / name).symlink_to(SITE / name)
    patch.setenv("PYTHONPATH", str(home.parent))


def by_service(harm: Callable[[LoopbackModal], None]) -> Harm:
    return lambda service, _patch, _folder: harm(service)


def no_environment(service: LoopbackModal, patch: pytest.MonkeyPatch, _folder: Path) -> None:
    service.faults.environments = {"main"}
    patch.setenv("MODAL_ENVIRONMENT", "staging")


TWO = "[one]\ntoken_id = 'ak'\ntoken_secret = 'as'\n[two]\ntoken_id = 'ak'\n"

ONES_OWN = {
    "no token": (files(""), "Token missing", "modal token new"),
    "a profile that there is not": (
        files("[one]\n", profile="other"),
        "'other'.*not found",
        "MODAL_PROFILE picks a profile",
    ),
    "no active profile": (files(TWO), "No Modal profile is active", "modal profile activate"),
    "a file that is no TOML": (files("[one"), "reading the modal configuration", "mend the file"),
    "an SDK that is too new": (newer_sdk, "modal 1.9.0 is installed", "pip install 'modal>=1.6"),
    "no way to pay": (by_service(harms.no_payment), "add a payment method", "payment method"),
}
"""Causes that end a session with exit status 4: harm, what is said, the way out."""


@pytest.mark.parametrize("cause", ONES_OWN)
def test_a_session_ends_before_anything_runs(
    cause: str,
    pytester: pytest.Pytester,
    service: LoopbackModal,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    pytester.makepyfile(TEST)
    harm, what, fix = ONES_OWN[cause]
    harm(service, monkeypatch, tmp_path)
    result = run(pytester, T4)
    text = " ".join(said(result).split())
    assert re.search(what, text), text
    assert fix in text
    assert result.ret == 4
    assert service.containers == []


def test_a_session_with_what_is_no_address(
    pytester: pytest.Pytester, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODAL_SERVER_URL", "notaurl")
    pytester.makepyfile(TEST)
    result = run(pytester, T4)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "MODAL_SERVER_URL='notaurl' is no address of a service; leave it out, or" in said(result)
    assert service.requests == []


@pytest.mark.parametrize("collects", ["far", "here"])
def test_a_session_with_a_network_that_is_too_slow(
    pytester: pytest.Pytester, service: LoopbackModal, collects: str
) -> None:
    """The file, or each test, is an error that says so; the session does not hang for longer."""
    pytester.makepyfile(TEST)
    pytester.makeconftest("""
        from pytest_remotegpu.backends.modal import calling

        calling.SIGNING_IN = 4.0
    """)
    service.faults.slow = {"ClientHello": 60.0}
    result = run(pytester, T4, "-o", f"remotegpu_collect={collects}")
    result.assert_outcomes(errors=1)
    assert result.ret == (1 if collects == "here" else pytest.ExitCode.INTERRUPTED)
    text = " ".join(said(result).split())
    assert "cause: Modal does not answer within 4 s; see" in text
    assert "Modal does not answer within 4 s; see https://status.modal.com, and the network" in text
    assert service.containers == []


SEEN: dict[str, tuple[Harm, str, str, str]] = {
    **{
        cause: (harm, name, what, fix)
        for (cause, (harm, what, fix)), name in zip(
            ONES_OWN.items(),
            (*["modal account"] * 3, *["modal SDK"] * 2, "remote"),
            strict=True,
        )
    },
    "a bad token": (
        by_service(harms.bad_token),
        "modal account",
        "does not take this token .Token validation failed",
        "modal token new",
    ),
    "an old client": (
        by_service(harms.old_client),
        "modal account",
        "no longer serves this version",
        "pip install --upgrade modal",
    ),
    "no such environment": (
        no_environment,
        "modal environment",
        "'staging' not found",
        "modal environment create staging",
    ),
    "a service that is down": (
        by_service(harms.down),
        "modal service",
        "can't be reached within 3 s",
        "https://status.modal.com",
    ),
    "a failing build": (
        by_service(harms.build_failure),
        "remote",
        "ninja: build stopped",
        "mend what its last lines name",
    ),
    "a quota": (
        by_service(harms.quota),
        "remote",
        "a quota or a rate is exhausted",
        "the workspace's limits",
    ),
    "no free card": (
        by_service(harms.no_card),
        "remote",
        "no container with T4 has started within 2 s",
        "name further cards",
    ),
}


@pytest.mark.parametrize("cause", SEEN)
def test_the_doctor_sees_it(
    cause: str,
    pytester: pytest.Pytester,
    service: LoopbackModal,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    pytester.makepyfile(TEST)
    harm, name, what, fix = SEEN[cause]
    harm(service, monkeypatch, tmp_path)
    checks = look(2.0 if cause == "no free card" else 60.0)
    *before, last = checks
    assert [each for each in before if each.state == FAIL] == []
    assert (last.state, last.name) == (FAIL, name), checks
    assert re.search(what, last.text), last.text
    assert fix in last.fix
    assert last.fix not in last.text
    assert "not delivered" not in last.text
    if harm is SEEN["a service that is down"][0]:
        service.up()


@pytest.mark.usefixtures("pytester")
def test_a_card_that_the_service_refuses(service: LoopbackModal) -> None:
    """Asked about by options alone, where the app is deployed: nothing is rented for that."""
    assert [each.state for each in look()].count(FAIL) == 0
    containers = len(service.containers)
    service.faults.no_payment_method()
    last = look()[-1]
    assert (last.state, last.name) == (FAIL, "modal card")
    assert "payment method" in last.text
    assert len(service.containers) == containers


def test_all_is_well(
    pytester: pytest.Pytester, service: LoopbackModal, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first look builds what the project asks for, as the first session would."""
    pytester.makeini("[pytest]\nremotegpu_requirements = requirements.txt\n")
    pytester.makefile(".txt", requirements="attrs\n")
    pytester.mkdir("modal")
    pytester.makepyfile(TEST)
    first, second = look(), look()
    for checks in (first, second):
        found = {each.name: each for each in checks}
        assert {each.state for each in checks if each.name != "remote"} == {OK}, checks
        assert found["remote"].state == WARN
        assert "pretends" in found["remote"].text
        assert f"{pytester.path / 'modal'} is not taken for it" in found["modal SDK"].text
        assert "workspace loopback" in found["modal account"].text
        assert "agrees with" in found["modal clock"].text
    told = {each.name: each.text for each in first}
    assert "is not deployed (no environment of this project is known here)" in told["modal app"]
    assert "requirements.txt, 1 line" in told["modal app"]
    assert "is deployed; nothing has to be built" in second[-4].text
    assert "modal:T4: builds rgpu-" in capfd.readouterr().err
    (ours,) = {each.name for each in service.deploys}
    assert ours in told["modal app"]
    result = run(pytester, T4, "-v")
    result.assert_outcomes(passed=1)
    assert {each.name for each in service.deploys} == {ours}


@pytest.mark.usefixtures("pytester")
def test_a_slow_network_and_a_clock_that_is_wrong(
    service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.faults.ahead = 100.0
    service.faults.slow = {"ClientHello": 2.1}
    harms.build_failure(service)
    found = {each.name: each for each in look()}
    assert found["modal account"].state == WARN, found
    assert "one answer took 2." in found["modal account"].text
    assert found["modal clock"].state == WARN
    assert "behind Modal's" in found["modal clock"].text
    service.faults.slow = {"ClientHello": 60.0}
    site = Site(executable=sys.executable)
    (late,) = list(examining.examine(sys.executable, {}, os.environ, 4.0))[2:]
    assert (late.state, late.text) == ("FAIL", "Modal does not answer within 4 s")
    monkeypatch.setattr("pytest_remotegpu.backends.modal.calling.SIGNING_IN", 0.5)
    with pytest.raises(FarSideError, match=r"within 0\.5 s; see https://status"):
        make("T4", site).open(Shape(1), Environment())


@pytest.mark.usefixtures("service")
def test_a_project_that_asks_for_what_is_not_there(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nremotegpu_requirements = nowhere.txt\n")
    (found,) = look()
    assert (found.state, found.name) == (FAIL, "project")
    assert "nowhere.txt" in found.text
    pytester.makeini("[pytest]\naddopts = --no-such-option\n")
    (found,) = look()
    assert "--no-such-option" in found.text
    assert "pytest --collect-only" in found.fix


def test_a_card_that_there_is_not(service: LoopbackModal) -> None:
    with pytest.raises(SpecError, match="did you mean A100"):
        far.look("modal:A1000", "", os.environ, 1.0)
    assert service.requests == []


def test_no_sdk(pytester: pytest.Pytester, service: LoopbackModal, tmp_path: Path) -> None:
    """In an interpreter without it; the session and the doctor name the line that installs it."""
    pytester.makepyfile(TEST)
    python = without_sdk(tmp_path / "bare")
    for words, status in (
        (("pytest", T4), 4),
        (("pytest_remotegpu", "doctor", T4), 1),
    ):
        done = subprocess.run(
            [str(python), "-m", *words], capture_output=True, text=True, timeout=60, check=False
        )
        text = done.stdout + done.stderr
        assert done.returncode == status, text
        assert "needs Modal's SDK" in text
        assert f"{python} -m pip install 'pytest-remotegpu[modal]'" in text
    assert service.requests == []


def without_sdk(folder: Path) -> Path:
    """Make an environment that has all that this one has, but for the SDK."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (there,) = (folder / "lib").glob("python*/site-packages")
    for path in SITE.iterdir():
        if not re.match(r"modal(-.*|_.*)?$", path.name):
            (there / path.name).symlink_to(path)
    return folder / "bin" / "python"
