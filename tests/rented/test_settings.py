"""Settings that hold for any far side hold for a container; of one that can't, that is said."""

from __future__ import annotations

import subprocess
import sys

import pytest

from loopback import LoopbackModal
from pytest_remotegpu.doctor import far
from pytest_remotegpu.errors import UsageError
from session.running import run, said

T4 = "--remote=modal:T4"
INI = """
    [pytest]
    remotegpu_env = MY_APP_*
    remotegpu_include = weights/tiny.bin
    remotegpu_exclude = **/*.ckpt
    remotegpu_aliases = cuda = gpu
    remotegpu_preload = wave
    remotegpu_timeout = 3
    remotegpu_max_artifact = 64
    markers = cuda: needs a card
"""
EACH = """
    import os, pathlib, sys, time, pytest

    HERE = pathlib.Path(__file__).parent

    @pytest.mark.cuda
    def test_all(artifacts_dir):
        assert "MODAL_TASK_ID" in os.environ
        assert os.environ["MY_APP_MODE"] == "test"
        assert "MY_TOKEN" not in os.environ
        assert (HERE / "weights/tiny.bin").read_bytes() == b"tiny"
        assert not (HERE / "step.ckpt").exists()
        assert "wave" in sys.modules
        (artifacts_dir / "small.txt").write_text("small")
        (artifacts_dir / "large.txt").write_text("x" * 100)

    @pytest.mark.gpu
    def test_hangs():
        time.sleep(60)
"""


def git(pytester: pytest.Pytester, *words: str) -> None:
    who = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    command = ["git", *who, *words]
    subprocess.run(command, cwd=pytester.path, check=True, capture_output=True)


def test_each_counts(
    pytester: pytest.Pytester, service: LoopbackModal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_APP_MODE", "test")
    monkeypatch.setenv("MY_TOKEN", "secret")
    pytester.makefile(".ini", pytest=INI)
    pytester.makepyfile(EACH)
    pytester.mkdir("weights").joinpath("tiny.bin").write_bytes(b"tiny")
    pytester.path.joinpath(".gitignore").write_text("weights\n")
    pytester.path.joinpath("step.ckpt").touch()
    git(pytester, "init", "-q", ".")
    result = run(pytester, T4)
    result.assert_outcomes(passed=1, failed=1)
    assert "timed out: the test took longer than 3 s" in said(result)
    found = pytester.path.glob(".pytest_cache/d/remotegpu/artifacts/*/*.txt")
    assert [path.name for path in found] == ["small.txt"]
    assert len(service.calls) == 1
    refused = run(pytester, T4, "-o", "remotegpu_max_upload=10")
    assert refused.ret == 4
    assert "over the limit of 10 B" in said(refused)
    assert len(service.calls) == 1


@pytest.mark.parametrize("seed", ["", "1234"])
@pytest.mark.usefixtures("service")
def test_a_hash_seed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    """It counts in a container, too; what was imported ahead without it is then not there."""
    pytester.makeini("[pytest]\nremotegpu_preload = wave\n")
    pytester.makepyfile(f"""
        import sys, pytest

        @pytest.mark.gpu
        def test_one():
            assert ("wave" in sys.modules) == (not {seed!r})
            pytest.skip(str(hash("seed")))
    """)
    if seed:
        monkeypatch.setenv("PYTHONHASHSEED", seed)
    command = [sys.executable, "-c", "print(hash('seed'))"]
    here = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    text = said(run(pytester, T4, "-rs"))
    assert "1 skipped" in text
    assert (f": {here}" in text) == bool(seed)


@pytest.mark.usefixtures("service")
def test_another_commit(pytester: pytest.Pytester) -> None:
    module = pytester.makepyfile("import pytest\n\n@pytest.mark.gpu\ndef test_one(): pass\n")
    git(pytester, "init", "-q", ".")
    git(pytester, "add", ".")
    git(pytester, "commit", "-q", "-m", "first")
    module.write_text(module.read_text().replace("pass", "assert 1 == 2"))
    run(pytester, T4).assert_outcomes(failed=1)
    run(pytester, T4, "--remote-rev=HEAD").assert_outcomes(passed=1)


# what a container has of its own


@pytest.mark.parametrize("more", [(), ("-n2",)], ids=["here", "xdist"])
def test_an_interpreter_of_other_far_sides_is_named(
    pytester: pytest.Pytester, service: LoopbackModal, more: tuple[str, ...]
) -> None:
    """One ini file is for several far sides, so it is no error; and who reads on knows."""
    if more:
        pytest.importorskip("xdist")
    pytester.makeini("[pytest]\nremotegpu_python = /opt/venv/bin/python\n")
    pytester.makepyfile("import pytest\n\n@pytest.mark.gpu\ndef test_one(): pass\n")
    result = run(pytester, T4, *more)
    result.assert_outcomes(passed=1)
    line = "remote: remotegpu_python = /opt/venv/bin/python counts for nothing at modal:T4, *"
    assert len(service.calls) == 1
    result.stdout.fnmatch_lines([line])
    assert said(result).count("counts for nothing") == 1
    plain = run(pytester, T4, *more, "-o", "remotegpu_python=")
    assert "counts for nothing" not in said(plain)


def test_the_doctor_takes_none(service: LoopbackModal) -> None:
    with pytest.raises(UsageError, match="--python=/opt/python names an interpreter on a host"):
        far.look("modal:T4", "/opt/python", service.environ, 5.0)
    assert not service.requests
