"""The checks of ``remotegpu doctor``: what each makes of what it finds, and the way out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cardfile
from cardfile import GIB, fake_card
from pytest_remotegpu import agents, doctor
from pytest_remotegpu.agents import Agent
from pytest_remotegpu.cards import Card, User
from pytest_remotegpu.doctor import framework, gpus, host, software
from pytest_remotegpu.doctor.check import FAIL, OK, WARN, Check
from pytest_remotegpu.doctor.framework import Torch
from pytest_remotegpu.doctor.gpus import Use
from pytest_remotegpu.locks import Lock

H200 = Card("0", "GPU-00000001-aaaa", "NVIDIA H200", 140 * GIB, 9.0)
L4 = Card("1", "GPU-00000002-aaaa", "NVIDIA L4", 23 * GIB, 8.9)
FREE = Lock(held=False, by=(), wanted_by=())


def states(checks: Iterable[Check]) -> list[str]:
    return [check.state for check in checks]


def test_whatever_is_not_well_has_a_way_out() -> None:
    checks = list(doctor.examine({**os.environ, "CUDA_VISIBLE_DEVICES": "7"}))
    assert [check for check in checks if bool(check.fix) is (check.state == OK)] == []
    names = {check.name for check in checks}
    assert {"python", "pytest", "msgspec", "driver", "torch", "space", "plugin"} <= names


# software


@pytest.mark.parametrize(
    ("found", "implementation", "state"),
    [((3, 11, 7), "CPython", OK), ((3, 10, 12), "CPython", FAIL), ((3, 12, 0), "PyPy", WARN)],
)
def test_python(found: tuple[int, ...], implementation: str, state: str) -> None:
    assert software.check_python(found, implementation, "/bin/python").state == state


@pytest.mark.parametrize(
    ("oldest", "found", "state"),
    [
        ("8.4", "8.4.0", OK),
        ("8.4", "8.4", OK),
        ("8.4", "10.0.dev1", OK),
        ("8.4", "8.3.5", FAIL),
        ("8.4", "", FAIL),
        ("0.20", "0.9.9", FAIL),
        ("0", "1.0", OK),
    ],
)
def test_packages_by_age(oldest: str, found: str, state: str) -> None:
    check = software.check_package("msgspec", oldest, found)
    assert check.state == state
    if state == FAIL:
        assert "pip install --upgrade 'msgspec>=" in check.fix


def test_each_package_that_is_needed_is_looked_at() -> None:
    checks = list(software.packages())
    assert {"pytest-remotegpu", "pytest", "pluggy", "cloudpickle", "msgspec"} <= {
        check.name for check in checks
    }
    assert {"modal", "torch", "flash-attn"} & {check.name for check in checks} == set()
    assert set(states(checks)) == {OK}


@pytest.mark.parametrize(
    ("variables", "names", "state"),
    [
        ({}, ["remotegpu"], OK),
        ({}, ["xdist"], FAIL),
        ({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, ["remotegpu"], WARN),
        ({"PYTEST_ADDOPTS": "-x -p no:remotegpu"}, ["remotegpu"], WARN),
        ({"PYTEST_ADDOPTS": "-x"}, ["remotegpu"], OK),
    ],
)
def test_plugin(variables: dict[str, str], names: list[str], state: str) -> None:
    assert software.check_plugin(variables, names).state == state


@pytest.mark.parametrize(("system", "state"), [("linux", OK), ("darwin", WARN), ("win32", WARN)])
def test_platform(system: str, state: str) -> None:
    assert software.check_platform(system, "1").state == state


# the driver and the cards


@pytest.mark.parametrize(
    ("trouble", "hardware", "state", "way"),
    [
        ("", True, OK, ""),
        ("NVML Shared Library Not Found", False, WARN, "--remote=local:cpu"),
        ("Driver Not Loaded", False, WARN, "--remote=ssh"),
        ("NVML Shared Library Not Found", True, FAIL, "--gpus all"),
        ("Driver Not Loaded", True, FAIL, "modprobe"),
        ("RM has detected an NVML/RM version mismatch.", True, FAIL, "reboot"),
        ("Insufficient Permissions", True, FAIL, "/dev/nvidia"),
        ("Unknown Error", True, FAIL, "restart the container"),
        ("never heard of", True, FAIL, "reset"),
        ("nvidia-ml-py can't be imported: No module", False, FAIL, "nvidia-ml-py"),
    ],
)
def test_driver(trouble: str, hardware: bool, state: str, way: str) -> None:
    check = gpus.check_driver(trouble, "580.1", (13, 0), has_hardware=hardware)
    assert check.state == state
    assert way in check.fix
    assert check.text == "580.1, serves CUDA up to 13.0" or trouble in check.text


def test_hardware_is_found_without_a_driver(tmp_path: Path) -> None:
    assert not gpus.shows_hardware(tmp_path)
    device = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    assert not gpus.shows_hardware(tmp_path)  # its class can't be read
    (device / "class").write_text("0x040300\n")  # the sound of one
    assert not gpus.shows_hardware(tmp_path)
    (device / "class").write_text("0x030200\n")
    assert gpus.shows_hardware(tmp_path)
    (tmp_path / "dev").mkdir()
    (device / "vendor").write_text("0x1002\n")
    assert not gpus.shows_hardware(tmp_path)
    (tmp_path / "dev/nvidia0").touch()
    assert gpus.shows_hardware(tmp_path)


def test_a_card_and_who_is_on_it() -> None:
    check = gpus.check_use(Use(H200, GIB, FREE))
    assert (check.state, check.text) == (
        OK,
        "card 0, NVIDIA H200 (GPU-00000001), 1.0 of 140.0 GiB in use, capability 9.0",
    )
    own = os.getpid()
    leased = gpus.check_use(Use(H200, 0, Lock(held=True, by=(own,), wanted_by=(own,))))
    assert leased.state == OK
    assert f"; leased by process {own} of " in leased.text
    assert f"; wanted by process {own} of " in leased.text
    unseen = gpus.check_use(Use(H200, 0, Lock(held=True, by=(), wanted_by=())))
    assert "leased by a process that can't be seen from here" in unseen.text
    foreign = gpus.check_use(Use(H200, 0, FREE, strangers=(User(own, 3 * GIB),)))
    assert foreign.state == WARN
    assert f"used without a lease by process {own} of " in foreign.text


@pytest.mark.parametrize(
    ("value", "shown", "there", "state", "text"),
    [
        (None, [H200], 1, OK, "unset: all cards are seen"),
        ("0", [H200], 1, OK, "='0' shows NVIDIA H200 (GPU-00000001)"),
        ("", [], 1, WARN, "every card is hidden"),
        ("-1", [], 1, WARN, "every card is hidden"),
        ("0,0", [], 1, FAIL, "names a card twice"),
        ("7", [], 1, FAIL, "'7' names none"),
        ("0, 7", [H200], 1, WARN, "'7' names none, and what follows does not count"),
        ("0", [], 0, OK, "shows no card"),
        (None, [H200, L4], 2, WARN, "may count the fastest first"),
    ],
)
def test_visible(value: str | None, shown: list[Card], there: int, state: str, text: str) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    check = gpus.check_visible(environ, shown, there)
    assert check.state == state
    assert text in check.text


@pytest.fixture
def cards_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Give this process the cards that are handed to the fixture's value."""
    path = tmp_path / "cards.json"
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.syspath_prepend(cardfile.STANDIN)
    monkeypatch.setenv("FAKE_NVML", str(path))
    yield lambda *cards, **more: cardfile.write_cards(path, cards, **more)
    sys.modules.pop("pynvml", None)


def test_a_host_with_cards(cards_of: Callable[..., None]) -> None:
    cards_of(fake_card(1), None, fake_card(3, mig=[]), cuda=12080)
    checks = list(gpus.examine({}))
    assert [(check.name, check.state) for check in checks] == [
        ("driver", OK),
        ("card", FAIL),
        ("card", FAIL),
        ("card", OK),
        ("visible", OK),
    ]
    assert checks[0].text == "580.65.06, serves CUDA up to 12.8"
    assert checks[1].text == "card 1 does not answer"
    assert "card 2, NVIDIA H200 (GPU-00000003), is in MIG mode without slices" in checks[2].text


def test_a_host_whose_driver_shows_none(cards_of: Callable[..., None]) -> None:
    cards_of()
    checks = list(gpus.examine({gpus.PRETEND: "2"}))
    assert [(check.name, check.state) for check in checks] == [
        ("driver", OK),
        ("card", WARN),
        ("card", WARN),
    ]
    assert "PYTEST_REMOTEGPU_PRETEND_GPUS=2 is set" in checks[1].text


# torch

GOOD = Torch("2.9.0", "12.8", archs=("sm_80", "sm_90"), available=True, nccl="2.27.5")


@pytest.mark.parametrize(
    ("torch", "there", "driver", "state", "text"),
    [
        (GOOD, [H200], (12, 8), OK, "2.9.0, built for CUDA 12.8"),
        (GOOD, [H200], (12, 2), OK, "built for CUDA 12.8"),  # minor versions get on
        (Torch(), [], None, OK, "not installed"),
        (Torch(), [H200], (13, 0), WARN, "fixtures"),
        (Torch("2.9.0+cpu"), [], None, OK, "built for the CPU"),
        (Torch("2.9.0+cpu"), [H200], (13, 0), FAIL, "no test can use a card with it"),
        (Torch("2.9.0", hip="6.4"), [H200], (13, 0), FAIL, "only CUDA is supported"),
        (
            Torch("2.9.0", "13.0", said=("too old",)),
            [H200],
            (12, 8),
            FAIL,
            "the driver serves CUDA up to 12.8 only: too old",
        ),
        (Torch("2.9.0", "12.8", said=("no",)), [H200], (12, 8), FAIL, "can't use a card: no"),
        (Torch("2.9.0", "12.8"), [H200], None, FAIL, "can't use a card"),
        (Torch(broken="it hangs"), [], None, FAIL, "it hangs"),
    ],
)
def test_torch(
    torch: Torch, there: list[Card], driver: tuple[int, int] | None, state: str, text: str
) -> None:
    check = framework.check_torch(torch, there, driver)
    assert check.state == state
    assert text in check.text
    if state == FAIL:
        assert sys.executable in check.fix


@pytest.mark.parametrize(
    ("archs", "capability", "runs"),
    [
        (["sm_80"], 8.0, True),
        (["sm_80"], 8.9, True),
        (["sm_86"], 8.0, False),
        (["sm_80"], 9.0, False),
        (["sm_90a"], 9.0, True),
        (["sm_100f"], 10.3, False),
        (["sm_100"], 10.3, True),
        (["sm_100", "sm_120"], 12.0, True),
        (["compute_80"], 12.0, True),
        (["compute_90"], 8.9, False),
        (["gfx942"], 9.0, False),
    ],
)
def test_code_for_cards(archs: list[str], capability: float, runs: bool) -> None:
    card = Card("0", "GPU-1", "NVIDIA X", GIB, capability)
    checks = list(framework.check_archs(Torch("2.9", "12.8", archs=tuple(archs)), [card, card]))
    assert states(checks) == ([] if runs else [FAIL])


def test_unknown_code_is_no_finding() -> None:
    assert list(framework.check_archs(Torch("2.9", "12.8"), [H200])) == []


def test_nccl() -> None:
    assert framework.check_nccl(GOOD, 2).text == "2.27.5"
    assert framework.check_nccl(Torch("2.9"), 1).state == OK
    assert framework.check_nccl(Torch("2.9"), 2).state == WARN


TORCH = """
print("noise")
__version__ = "9.9.0"
class version: cuda, hip = "13.0", None
class cuda:
    class nccl:
        version = staticmethod(lambda: (2, 27, 5))
    def is_available():
        import os, warnings
        warnings.warn("so old")
        return "CUDA_VISIBLE_DEVICES" not in os.environ
    def get_arch_list(): return ["sm_90"]
class distributed:
    is_available = is_nccl_available = staticmethod(lambda: True)
"""


def looked_at(folder: Path, code: str, limit: float = 60.0) -> Torch:
    """Look at a torch that is made of *code*."""
    (folder / "torch.py").write_text(code)
    environ = {**os.environ, "PYTHONPATH": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    return framework.look(sys.executable, environ, limit)


def test_a_look_at_torch(tmp_path: Path) -> None:
    assert looked_at(tmp_path, TORCH) == Torch(
        "9.9.0",
        "13.0",
        archs=("sm_90",),
        available=True,
        said=("so old",),
        nccl="2.27.5",
    )


@pytest.mark.parametrize(
    ("code", "limit", "said"),
    [
        ("raise ImportError('libcudart.so.12: cannot open')", 60.0, "libcudart.so.12: cannot open"),
        ("import nothing_like_it", 60.0, "No module named 'nothing_like_it'"),
        ("import os; os.kill(os.getpid(), 11)", 60.0, "ended with signal 11"),
        ("import time; time.sleep(1000)", 0.1, "did not answer within 0.1 s"),
    ],
    ids=["library", "module", "crash", "hang"],
)
def test_a_broken_torch(code: str, limit: float, said: str, tmp_path: Path) -> None:
    torch = looked_at(tmp_path, code, limit)
    assert said in torch.broken
    assert framework.check_torch(torch, [], None).state == FAIL


def test_a_crash_after_the_first_words(tmp_path: Path) -> None:
    code = TORCH.replace("(2, 27, 5)", "__import__('os').abort()")
    torch = looked_at(tmp_path, code)
    assert (torch.version, torch.nccl) == ("9.9.0", "")
    assert "signal 6" in torch.broken


def test_no_torch(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    assert framework.look(str(python), {}) == Torch()


def test_an_interpreter_that_is_not_there() -> None:
    assert "can't be looked at" in framework.look("/nowhere/python", {}).broken


# the host


def test_leases(tmp_path: Path) -> None:
    folder = tmp_path / "leases"
    assert host.check_leases(folder).state == OK
    folder.mkdir(mode=0o755)
    assert host.check_leases(folder).state == FAIL
    folder.chmod(0o1777)
    (folder / "GPU-1").touch()
    assert host.check_leases(folder).state == OK
    (folder / "GPU-2").symlink_to("/dev/null")
    check = host.check_leases(folder)
    assert (check.state, "'GPU-2'" in check.text) == (FAIL, True)
    assert host.check_leases(folder / "GPU-1").state == FAIL
    assert host.check_leases(folder / "GPU-1" / "x").state == FAIL


def test_socket(tmp_path: Path, warm_home: Any) -> None:
    good = {"XDG_RUNTIME_DIR": str(warm_home.runtime)}
    assert host.check_socket(good).state == OK
    assert list(warm_home.runtime.glob("*/*.try")) == []
    long = tmp_path / ("x" * 120)
    long.mkdir()
    check = host.check_socket({"XDG_RUNTIME_DIR": str(long)})
    assert check.state == WARN
    assert "takes no socket" in check.text
    (tmp_path / "pytest-remotegpu").mkdir(mode=0o755)
    check = host.check_socket({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert check.state == WARN
    assert "must be a folder of this user's alone" in check.text


@pytest.mark.parametrize(
    ("agent", "state", "text"),
    [
        (Agent(Path("/x.sock"), agents.DEAD), OK, "/x.sock is left of one that was killed"),
        (Agent(Path("/x.sock"), agents.SILENT, 7), FAIL, "process 7 does not answer"),
        (
            Agent(Path("/x.sock"), agents.SERVES, 7, {"python": "/p", "since": 40.0}),
            OK,
            "process 7 of /p for 60 s, 0 workers",
        ),
        (
            Agent(Path("/x.sock"), agents.SERVES, 7, {"since": 40.0, "stale": True}),
            WARN,
            "this package has changed since",
        ),
    ],
)
def test_agent(agent: Agent, state: str, text: str) -> None:
    check = host.check_agent(agent, 100.0)
    assert check.state == state
    assert text in check.text


@pytest.mark.parametrize(
    ("free", "writable", "state"),
    [(9 * GIB, True, OK), (GIB, True, WARN), (10**6, True, FAIL), (9 * GIB, False, FAIL)],
)
def test_space(free: int, writable: bool, state: str) -> None:
    assert host.check_space("files", Path("/tmp"), free, writable=writable).state == state  # noqa: S108 -- only a name


def test_limits() -> None:
    assert states(host.check_limits({"NOFILE": -1, "NPROC": -1, "AS": -1}, root=False)) == [OK]
    few = {"NOFILE": 256, "NPROC": 100, "AS": GIB}
    fixes = [check.fix for check in host.check_limits(few, root=False)]
    assert fixes == ["ulimit -n 1024", "ulimit -u 1024", "ulimit -v unlimited"]
    assert len(list(host.check_limits(few, root=True))) == 2


def test_shared_memory() -> None:
    assert host.check_shared_memory(None).state == WARN
    assert host.check_shared_memory(2**26).state == WARN
    assert host.check_shared_memory(2**33).state == OK


def test_under_ci_no_agent_is_expected(warm_home: Any) -> None:
    environ = {"XDG_RUNTIME_DIR": str(warm_home.runtime), "CI": "true"}
    assert (
        "CI is set" in [check.text for check in host.examine(environ) if check.name == "agent"][-1]
    )


# agents and their sockets


def test_dead_and_strange_sockets(warm_home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = warm_home.runtime / "apart"
    (runtime / "pytest-remotegpu").mkdir(parents=True, mode=0o700)
    environ = {"XDG_RUNTIME_DIR": str(runtime)}
    path = runtime / "pytest-remotegpu" / "dead.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        (strange,) = agents.find(environ, 0.05)  # this process is no agent
        assert (strange.state, strange.pid) == (agents.DEAD, 0)
    (dead,) = agents.find(environ)
    assert dead.state == agents.DEAD
    assert agents.end(dead)
    assert agents.find(environ) == []
    monkeypatch.setattr(sys, "platform", "win32")
    assert agents.find(environ) == []


def test_doctor_needs_none_of_the_packages_that_may_be_missing() -> None:
    code = """
import sys
for name in ("pytest", "msgspec", "cloudpickle", "pluggy", "torch"):
    sys.modules[name] = None
import os
from pytest_remotegpu import cli
sys.exit(cli.main(["ps"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
