"""What is said on the command line, in the environment and in the ini file, and what is refused.

Nothing here starts a far side: sessions run in this process, and a fake interpreter tells on
whoever starts one after all.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .running import CPU, FakePython, run, said

COLLECTS_HERE = ("-o", "remotegpu_collect=here")
"""With these this side finds out by itself which tests there are, so that nothing has to start."""
FAR = """
    import pytest

    @pytest.mark.gpu
    def test_far():
        raise SystemExit("it was run")
"""


@pytest.fixture
def fake(pytester: pytest.Pytester, tmp_path: Path) -> FakePython:
    """Make a project with one marked test, whose far interpreter tells when it is started."""
    fake = FakePython(tmp_path)
    pytester.makeini(f"[pytest]\nremotegpu_python = {fake.path}\n")
    pytester.makepyfile(FAR)
    return fake


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("", ["names no backend", "BACKEND[:REST]", "local:cpu"]),
        (":", ["names no backend", "':'"]),
        (":cpu", ["names no backend", "':cpu'"]),
        (" local:cpu", ["names no backend"]),
        ("locl:cpu", ["no backend 'locl'", "did you mean 'local'", "command, local, modal, ssh"]),
        ("Local:cpu", ["no backend 'Local'", "did you mean 'local'"]),
        ("MODAL:T4", ["no backend 'MODAL'", "did you mean 'modal'"]),
        ("nowhere", ["no backend 'nowhere'", "command, local, modal, ssh"]),
        ("local:gpu", ["local:gpu is not understood", "local (this host's CUDA cards)"]),
        ("local:gpu", ["local:gpu is not understood", "local:cpu:N"]),
        ("local:cpu:", ["not understood", "local:cpu:N"]),
        ("local:cpu:0", ["pretends 0", "1 to 1024"]),
        ("local:cpu:1025", ["pretends 1025", "1 to 1024"]),
        ("local:cpu:-1", ["not understood", "local:cpu:N"]),
        ("local:cpu:x", ["local:cpu:x is not understood", "local:cpu:N"]),
        ("local:cpu:\u0663", ["is not understood", "local:cpu:N"]),
        ("local:cpu:2:3", ["not understood"]),
        ("ssh", ["names no host", "ssh:USER@HOST"]),
        ("ssh:", ["names no host", "ssh:USER@HOST"]),
        ("ssh:-oProxyCommand=x", ["names no host"]),
        ("ssh:a b", ["names no host"]),
        ("command:", ["names no command", "command:PREFIX"]),
        ("command:  ", ["names no command"]),
        ("command:sh -c 'x", ["not well quoted", "No closing quotation"]),
    ],
)
def test_an_ill_formed_spec(
    spec: str, named: list[str], pytester: pytest.Pytester, fake: FakePython
) -> None:
    result = pytester.runpytest_inprocess(f"--remote={spec}")
    text = said(result)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [part for part in named if part not in text] == []
    assert "collected" not in text
    assert not fake.started


def test_the_fake_would_tell(pytester: pytest.Pytester, fake: FakePython) -> None:
    result = run(pytester, CPU)
    assert fake.started
    assert result.ret != pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["--remote-timeout=soon"], ["--remote-timeout = 'soon'", "seconds"]),
        (["--remote-wait=-1"], ["--remote-wait = '-1'", "seconds"]),
        (["--pdb"], ["--pdb", "without --remote"]),
        (["--trace"], ["--trace", "without --remote"]),
        (["--gpu-required"], ["--gpu-required refuses", "local:cpu"]),
        (["-o", "remotegpu_required=true"], ["--gpu-required refuses", "local:cpu"]),
        (["-o", "remotegpu_max_upload=much"], ["remotegpu_max_upload = 'much'", "MiB"]),
        (["-o", "remotegpu_max_artifact=-1"], ["remotegpu_max_artifact = '-1'", "MiB"]),
        (["-o", "remotegpu_aliases=hpc"], ["remotegpu_aliases", "'hpc'", "NAME = gpu(2)"]),
        (["-o", "remotegpu_aliases=hpc = gpu(0)"], ["'hpc = gpu(0)'", "from 1 to"]),
        (["-o", "remotegpu_required=maybe"], ["maybe"]),
        *(
            ([f"--remote-{name}="], [f"--remote-{name}= is empty", "leave the option out"])
            for name in ("rev", "json", "artifacts")
        ),
    ],
)
def test_options_that_do_not_go_together_or_say_nothing(
    args: list[str], named: list[str], pytester: pytest.Pytester, fake: FakePython
) -> None:
    result = pytester.runpytest_inprocess(CPU, *args)
    text = said(result)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [part for part in named if part not in text] == []
    assert not fake.started


@pytest.mark.parametrize("value", ["locl:cpu", ":"])
@pytest.mark.parametrize("place", ["environment", "ini", "addopts", "PYTEST_ADDOPTS"])
def test_a_spec_is_read_alike_wherever_it_is_said(
    place: str, value: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(FAR)
    if place == "environment":
        monkeypatch.setenv("PYTEST_REMOTEGPU", value)
    elif place == "ini":
        pytester.makeini(f"[pytest]\nremotegpu = {value}\n")
    elif place == "addopts":
        pytester.makeini(f"[pytest]\naddopts = --remote={value}\n")
    else:
        monkeypatch.setenv("PYTEST_ADDOPTS", f"--remote={value}")
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert repr(value).partition(":")[0] in said(result)


@pytest.mark.parametrize(
    ("args", "where"),
    [
        (["--remote", "local:cpu:3"], "3 pretend GPUs"),
        (["--remote=local:cpu:3"], "3 pretend GPUs"),
        (["--remotegpu=local:cpu:3"], "3 pretend GPUs"),
        (["--remotegpu", "local:cpu:3"], "3 pretend GPUs"),
        (["--remote=nonsense", "--remote=local:cpu:3"], "3 pretend GPUs"),
        (["--remote=local:cpu", "--remotegpu=local:cpu:3"], "3 pretend GPUs"),
        (["--remote=local:cpu:1"], "1 pretend GPU "),
    ],
)
def test_ways_to_write_it(args: list[str], where: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FAR)
    result = pytester.runpytest_inprocess(*args, "--collect-only")
    assert result.ret == pytest.ExitCode.OK
    header = next(line for line in result.outlines if line.startswith("remote: local:cpu"))
    assert where in f"{header} "
    assert "no GPU is used" in header


def test_two_words_leave_the_paths_as_they_were(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntestpaths = checks\n")
    pytester.mkdir("checks")
    pytester.path.joinpath("checks", "test_in.py").write_text("def test_in(): pass\n")
    pytester.path.joinpath("checks", "conftest.py").write_text(
        "def pytest_addoption(parser): parser.addoption('--mine')\n"
    )
    pytester.makepyfile(test_out="def test_out(): pass")
    for spec in ([CPU], ["--remote", "local:cpu"]):
        result = pytester.runpytest_inprocess(*spec, "--mine=1", "--collect-only", "-q")
        assert result.outlines[:1] == ["checks/test_in.py::test_in"]


def test_a_bad_option_of_ours_is_told_by_pytest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FAR)
    result = pytester.runpytest_inprocess("--remote-plam")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert re.search(r"unrecognized arguments.*--remote-plam", said(result))


def test_nothing_selected_starts_nothing(pytester: pytest.Pytester, fake: FakePython) -> None:
    """Where this side collects: else whoever does has to be started."""
    for expression in ("nothing_like_this", "far and not far"):
        result = pytester.runpytest_inprocess(CPU, *COLLECTS_HERE, "-k", expression)
        assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert not fake.started


def test_nothing_selected_of_what_was_collected_there(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FAR)
    result = run(pytester, CPU, "-k", "nothing_like_this")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.assert_outcomes(deselected=1)


def test_collect_only_and_local_tests_start_nothing(
    pytester: pytest.Pytester, fake: FakePython
) -> None:
    pytester.makepyfile(test_local="def test_local(): pass")
    result = pytester.runpytest_inprocess(CPU, *COLLECTS_HERE, "--collect-only")
    assert result.ret == pytest.ExitCode.OK
    result = pytester.runpytest_inprocess(CPU, "test_local.py")
    result.assert_outcomes(passed=1)
    assert not fake.started
