"""What a session with ``-n`` says: once what concerns all of it, else with the process's name."""

from __future__ import annotations

import re
import sys
from collections import Counter

import pytest

from session.running import CPU, run, said

pytest.importorskip("xdist")

FILE = """
    import pytest

    @pytest.mark.gpu
    @pytest.mark.parametrize("n", range(4))
    def test_there(n): pass

    @pytest.mark.gpus
    def test_here(): pass
"""
OF_ALL = (
    "remote: local:cpu, this host's CPU, 2 pretend GPUs (no GPU is used)",
    "remote: 4 tests on 1 GPU, 1 here",
    "remote: cost: at most $0.205, $2.00 an hour for 360 s and its end",
    "remote: marker 'gpus' ships nothing; did you mean 'gpu'?",
)


def lines(pytester: pytest.Pytester, *args: str) -> list[str]:
    """Run a session; give its lines that begin as ours do."""
    result = run(pytester, CPU, "--remote-run-timeout=360", *args)
    result.assert_outcomes(passed=5)
    return re.findall(r"^remote: .*$", said(result), re.MULTILINE)


@pytest.fixture(autouse=True)
def _project(pytester: pytest.Pytester) -> None:
    pytester.makeini("""
        [pytest]
        remotegpu_prices = local:cpu = 1
        markers = gpus: a slip
    """)
    pytester.makepyfile(FILE)


@pytest.mark.parametrize(
    "args", [("-n2",), ("-n1",), ("--tx=popen//id=a", "--tx=popen//id=b", "--dist=load")]
)
def test_what_concerns_all_is_said_once(args: tuple[str, ...], pytester: pytest.Pytester) -> None:
    price = "$0.205, $2.00" if args != ("-n1",) else "$0.103, $1.00"
    expected = [line.replace("$0.205, $2.00", price) for line in OF_ALL]
    assert Counter(lines(pytester, *args)) == Counter(expected)


def test_it_is_what_a_session_without_processes_says(pytester: pytest.Pytester) -> None:
    expected = [line.replace("$0.205, $2.00", "$0.103, $1.00") for line in OF_ALL]
    assert Counter(lines(pytester)) == Counter(expected)
    assert lines(pytester, "-q") == lines(pytester, "-q", "-n1") == []


def test_it_is_said_as_well_where_nothing_is_shipped(pytester: pytest.Pytester) -> None:
    """Just then a slip in a mark matters."""
    result = run(pytester, CPU, "-n2", "-k", "test_here")
    result.assert_outcomes(passed=1)
    assert said(result).count("remote: marker 'gpus' ships nothing; did you mean 'gpu'?") == 1


def test_what_a_worker_says_bears_the_name_of_its_process(pytester: pytest.Pytester) -> None:
    result = run(pytester, CPU, "-n2", "--remote-debug")
    told = re.findall(r"^remote debug: (.*)$", said(result), re.MULTILINE)
    assert {line[:5] for line in told} == {"[gw0]", "[gw1]"}
    assert {line[:5] for line in told if "tests on 1 GPU" in line} == {"[gw0]", "[gw1]"}


def far_with_torch(pytester: pytest.Pytester) -> str:
    """Name a far side on this host that says that it has torch."""
    info = pytester.path.parent / f"{pytester.path.name}-far" / "torch-2.6.0+cu126.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: torch\nVersion: 2.6.0+cu126\n", encoding="utf-8")
    pytester.makeini(f"[pytest]\nremotegpu_python = {sys.executable}\n")
    env = f"env -C / PYTHONPATH={info.parent} PYTEST_REMOTEGPU_PRETEND_GPUS=2"
    return f"--remote=command:{env}"


def test_what_the_far_side_has_is_said_once_for_all_processes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu
        @pytest.mark.parametrize("n", range(6))
        def test_there(n): pass
    """)
    far = far_with_torch(pytester)
    result = run(pytester, far, "-n2")
    result.assert_outcomes(passed=6)
    assert said(result).count("remote: the far side has torch 2.6.0+cu126") == 1
    for quiet in ("-q", "--no-header"):
        assert "the far side has" not in said(run(pytester, far, "-n2", quiet))
