"""An interpreter without torch here, and one that has it there: the whole suite is in the session.

The near one is made of links to what is installed, but for the packages that only GPUs need; the
far one has small stand-ins of them, or the real torch where it is installed.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from session.running import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory as Linux measures it")

LACKING = ("torch", "triton", "flash_attn", "functorch", "torchgen", "nvidia", "numpy")
FAKES = {
    "torch/__init__.py": """
        float16, bfloat16 = "float16", "bfloat16"
        def ones(*size, dtype): return [1.0] * size[0]
        BALLAST = bytearray(64 * 2**20)  # what it costs to have it
    """,
    "torch/cuda.py": "def is_available(): return True\ndef device_count(): return 2\n",
    "triton.py": "def jit(function): return function\n",
    "flash_attn.py": "def flash_attn_func(q): return q\n",
}
KERNELS = """
    import pytest
    import torch
    import torch.cuda
    import triton

    flash_attn = pytest.importorskip("flash_attn")
    pytestmark = pytest.mark.gpu

    @triton.jit
    def kernel(x): return x

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    class TestForward:
        @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a card")
        def test_flash(self, dtype):
            assert flash_attn.flash_attn_func(torch.ones(4, dtype=dtype)) == [1.0] * 4

        @pytest.mark.parametrize("device", range(torch.cuda.device_count()))
        def test_kernel(self, dtype, device):
            assert kernel(torch.ones(2, dtype=dtype))

    @pytest.mark.xfail(torch.cuda.is_available(), reason="known")
    def test_known(): assert torch.cuda.device_count() == 1
"""
PEAK = """
    import os, pathlib

    def pytest_unconfigure():
        if "REMOTEGPU_WORKER" not in os.environ:
            lines = pathlib.Path("/proc/self/status").read_text().splitlines()
            (kib,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
            print(f"PEAK {int(kib) / 1024}")
"""
PLAIN = """
    import importlib.util

    def test_here():
        for name in ("torch", "triton", "flash_attn"):
            assert importlib.util.find_spec(name) is None
"""
IDS = [
    "test_kernels.py::TestForward::test_flash[float16]",
    "test_kernels.py::TestForward::test_flash[bfloat16]",
    "test_kernels.py::TestForward::test_kernel[0-float16]",
    "test_kernels.py::TestForward::test_kernel[0-bfloat16]",
    "test_kernels.py::TestForward::test_kernel[1-float16]",
    "test_kernels.py::TestForward::test_kernel[1-bfloat16]",
    "test_kernels.py::test_known",
    "test_plain.py::test_here",
]


@dataclass(frozen=True)
class Done:
    """A session that has ended."""

    status: int
    text: str

    @property
    def peak(self) -> float:
        """The most memory that its process has had, in MiB; what it has started does not count."""
        return float(self.text.partition("PEAK ")[2].split()[0])

    @property
    def ids(self) -> list[str]:
        """The ids that it lists."""
        return [line for line in self.text.splitlines() if "::" in line and "==" not in line]


class Near:
    """An interpreter that has all but torch and its like."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        (site,) = folder.glob("lib/python*/site-packages")
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if not entry.name.startswith(LACKING) and not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
        self.python = folder / "bin" / "python"

    def run(self, folder: Path, *args: str) -> Done:
        """Run pytest with it."""
        command = [str(self.python), "-m", "pytest", "-p", "no:cacheprovider", *args]
        environ = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            command,
            cwd=folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert "INTERNALERROR" not in done.stdout
        return Done(done.returncode, done.stdout)


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Near:
    """Give the interpreter without torch."""
    return Near(tmp_path_factory.mktemp("near") / "venv")


def far_python(pytester: pytest.Pytester) -> Path:
    """Make an interpreter that has the stand-ins."""
    folder = pytester.mkdir("far")
    pytester.makepyfile(**{f"far/{name.removesuffix('.py')}": text for name, text in FAKES.items()})
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return script


def settings(pytester: pytest.Pytester, python: Path | str) -> None:
    """Write the ini file of a project whose GPU tests are collected and run by another Python."""
    pytester.makeini(
        f"[pytest]\nremotegpu = local:cpu\nremotegpu_collect = far\nremotegpu_python = {python}\n"
        "norecursedirs = far\n"
    )


def test_the_whole_suite_is_in_the_session_and_runs(near: Near, pytester: pytest.Pytester) -> None:
    settings(pytester, far_python(pytester))
    pytester.makepyfile(test_kernels=KERNELS, test_plain=PLAIN)
    listed = near.run(pytester.path, "--collect-only", "-q", "--remote-fresh")
    assert (listed.ids, listed.status) == (IDS, 0), listed.text
    whole = near.run(pytester.path, "-rA", "--remote-fresh", "--strict-markers", "-W", "error")
    assert whole.status == 0, whole.text
    assert "7 passed, 1 xfailed" in whole.text
    chosen = near.run(pytester.path, "-q", "--remote-fresh", "-k", "flash and bfloat16")
    assert "1 passed, 7 deselected" in chosen.text, chosen.text


def test_without_the_option_the_file_is_the_error_that_it_ever_was(
    near: Near, pytester: pytest.Pytester
) -> None:
    settings(pytester, far_python(pytester))
    pytester.makepyfile(test_kernels=KERNELS)
    done = near.run(pytester.path, "-o", "remotegpu_collect=here", "--remote-fresh")
    assert done.status == 2
    assert "No module named 'torch'" in done.text


@pytest.mark.parametrize("collects", ["far", "here"])
def test_a_warning_of_both_interpreters_is_given_once(
    near: Near, pytester: pytest.Pytester, collects: str
) -> None:
    """Each has the files that warn in a folder of its own."""
    settings(pytester, sys.executable)
    with (pytester.path / "tox.ini").open("a", encoding="utf-8") as file:
        file.write("\nunheard_of = 1\n")
    pytester.makepyfile(test_it="import pytest\n@pytest.mark.gpu\ndef test(): pass\n")
    options = ("-o", f"remotegpu_collect={collects}", "--remote-fresh")
    far = near.run(pytester.path, *options)
    assert far.text.count("Unknown config option: unheard_of") == 1, far.text
    assert "1 passed, 1 warning" in far.text, far.text


def test_memory_here_is_that_of_a_session_without_such_files(
    near: Near, pytester: pytest.Pytester
) -> None:
    real = importlib.util.find_spec("torch") is not None
    settings(pytester, sys.executable if real else far_python(pytester))
    text = "import pytest\nimport torch\n@pytest.mark.gpu\ndef test_it(): assert torch.ones\n"
    pytester.makeconftest(PEAK)
    pytester.makepyfile(test_it=text, test_plain=PLAIN)
    plain = near.run(pytester.path, "-o", "remotegpu=", "test_plain.py")
    far = near.run(pytester.path, "--remote-fresh")
    assert (plain.status, far.status) == (0, 0), plain.text + far.text
    assert "2 passed" in far.text
    assert far.peak < 2 * plain.peak
