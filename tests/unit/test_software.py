"""What a far side is made of: found without importing it, shown, and compared with here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_remotegpu import software
from pytest_remotegpu.summary import RunSummary
from pytest_remotegpu.worker import versions

TORCH = "__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a folder of packages that can't be imported; nothing else is installed."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setenv("FAKE_NVML", str(tmp_path / "none"))
    return tmp_path


def put(folder: Path, name: str, version: str, text: str | None = None) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("raise SystemExit('imported')")
    if text is not None:
        (folder / name / "version.py").write_text(text)


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        (TORCH, "13.0"),
        ("cuda = '12.8'\n", "12.8"),
        ("cuda: Optional[str] = None\n", ""),
        ("\nno_cuda = '1'", ""),
        (None, ""),
    ],
)
def test_versions_are_found_without_an_import(install: Path, text: str | None, cuda: str) -> None:
    put(install, "torch", "2.11.0+cu130", text)
    put(install, "flash_attn", "2.8.3")
    there = {"torch": "2.11.0+cu130", "flash-attn": "2.8.3", **({"CUDA": cuda} if cuda else {})}
    assert {name: text for name, text in versions.found().items() if name != "driver"} == there


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ('set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")', "FALSE"),
        ('set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=1")', "TRUE"),
        ("set(TORCH_LIBRARIES torch)", "TRUE"),
        ("", None),
    ],
)
def test_the_abi_of_torch_is_found(install: Path, text: str, flag: str | None) -> None:
    put(install, "torch", "2.6.0", TORCH)
    folder = install / "torch" / "share" / "cmake" / "Torch"
    folder.mkdir(parents=True)
    (folder / "TorchConfig.cmake").write_text(text)
    assert versions.found().get("cxx11abi") == flag


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("E  ImportError: flash_attn_2_cuda.so: undefined symbol: _ZN3c10", True),
        ("E  ImportError: libcudart.so.12: cannot open shared object file", True),
        ("E  assert 1 == 2", False),
    ],
)
def test_where_builds_do_not_fit_all_of_them_are_named(text: str, *, told: bool) -> None:
    said = {"flash-attn": "2.8.3", "torch": "2.6.0+cu126", "CUDA": "12.6", "cxx11abi": "FALSE"}
    words = "the far side has torch 2.6.0+cu126, CUDA 12.6, cxx11abi FALSE, flash-attn 2.8.3"
    assert software.of_failure(text, said) == [words] * told
    assert software.of_failure(text, {}) == []


@pytest.mark.usefixtures("install")
def test_nothing_installed_is_nothing_to_say() -> None:
    assert not set(versions.found()) - {"driver"}
    assert software.installed() == {}
    assert software.in_words({}) == ""


def test_it_is_said_in_the_order_that_matters_and_only_what_looks_like_a_version() -> None:
    said = {
        "flash-attn": "2.8.3",
        "driver": "580.65.06",
        "CUDA": "13.0",
        "torch": "2.11.0+cu130",
        "triton": "\x1b[31m3",
        "jax": "1" * 41,
        "evil": "1",
    }
    words = "torch 2.11.0+cu130, CUDA 13.0, driver 580.65.06, flash-attn 2.8.3"
    assert software.in_words(said) == words


@pytest.mark.parametrize(
    ("real", "elsewhere", "names", "text"),
    [
        (True, False, "torch CUDA driver jax", "the far side has torch 1, CUDA 1, driver 1"),
        (True, True, "driver", "the far side has driver 1"),
        (True, True, "jax", ""),
        (False, True, "torch driver", "the far side has torch 1, driver 1"),
        (False, True, "driver", ""),
        (False, False, "torch CUDA driver", ""),
    ],
)
def test_what_is_told_before_the_first_test(
    *, real: bool, elsewhere: bool, names: str, text: str
) -> None:
    said = dict.fromkeys(names.split(), "1")
    assert software.heading(said, real=real, elsewhere=elsewhere) == text


@pytest.mark.parametrize(
    ("here", "there", "text"),
    [
        ({"torch": "2.10.0"}, {"torch": "2.11.0"}, "torch is 2.11.0 there and 2.10.0 here"),
        ({"torch": "2.11.0+cpu"}, {"torch": "2.11.0+cu130"}, ""),
        ({}, {"torch": "2.11.0"}, ""),
        ({"torch": "2.11.0"}, {}, ""),
        ({"torch": "2.11.0"}, {"torch": "\x1b[2J"}, ""),
        (
            {"torch": "1", "triton": "2"},
            {"torch": "2", "triton": "3"},
            "torch is 2 there and 1 here; triton is 3 there and 2 here",
        ),
    ],
)
def test_what_differs_is_one_line(here: dict[str, str], there: dict[str, str], text: str) -> None:
    assert software.differences(here, there) == text


def test_the_summary_has_it_once_and_only_for_real_gpus() -> None:
    summary = RunSummary(where="Modal", real=True)
    other = RunSummary(real=True)
    for each in (summary, summary, other):
        each.equip("torch 2")
    other.equip("torch 3")
    other.equip("")
    summary.add(RunSummary.from_plain(other.to_plain()))
    assert list(summary.lines()) == ["on Modal", "with torch 2", "with torch 3"]
    summary.real = False
    assert list(summary.lines()) == ["on Modal (no GPU was used)"]
