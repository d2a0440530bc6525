"""Marked tests without a far side: which of them run on this host's cards, and why others do not.

The cards are a file that a stand-in for NVML reads; no test here touches one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cardfile
from cardfile import fake_card

from .running import run, said

Host = Callable[..., None]
H200 = fake_card(1)
T4 = fake_card(2, "Tesla T4", gib=15, capability=7.5)


@pytest.fixture
def host(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Give the sessions of a test the cards that are handed to the fixture's value."""
    path = pytester.path / "cards.json"
    for name, value in cardfile.environment(path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    return lambda *cards: cardfile.write_cards(path, cards)


def skipped(pytester: pytest.Pytester, mark: str) -> str:
    """Run one test with a mark; say why it was skipped, nothing where it ran."""
    pytester.makepyfile(f"import pytest\n@pytest.mark.{mark}\ndef test_it(): pass\n")
    result = run(pytester, "-rs", "-p", "no:cacheprovider")
    outcomes = result.parseoutcomes()
    reasons = [line.partition(": ")[2] for line in result.outlines if line.startswith("SKIPPED [")]
    assert outcomes == ({"skipped": 1} if reasons else {"passed": 1})
    return "".join(reasons)


def reason(needs: str, shows: str, way: str = "SPEC") -> str:
    """Give the whole reason for a skip."""
    return f"needs {needs}, {shows}; run it with --remote={way} (see pytest --help)"


CASES: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "enough": ([H200, H200], "gpu(2)", ""),
    "type": ([H200], "gpu(type=['A100', 'h200'])", ""),
    "memory": ([H200], "gpu(min_memory_gib=141)", ""),
    "capability": ([H200], "gpu(min_capability=9)", ""),
    "limit": ([H200], "gpu(timeout=1)", ""),
    "too few": ([H200], "gpu(2)", reason("2 GPUs", "this host shows 1 x NVIDIA H200")),
    "none": ([], "gpu(type='A100')", reason("1 GPU (A100)", "this host shows 0")),
    "other type": (
        [H200],
        "gpu(type='A100')",
        reason("1 GPU (A100)", "this host shows 1 x NVIDIA H200; NVIDIA H200 is not A100"),
    ),
    "too small": (
        [T4, T4],
        "gpu(min_memory_gib=24)",
        reason(
            "1 GPU (at least 24 GiB)",
            "this host shows 2 x Tesla T4; Tesla T4 has 15.0 GiB, not 24 GiB",
        ),
    ),
    "too old": (
        [T4],
        "gpu(min_capability=8.0)",
        reason(
            "1 GPU (capability 8.0 or newer)",
            "this host shows 1 x Tesla T4; Tesla T4 has compute capability 7.5, not 8.0",
        ),
    ),
    "order not certain": (
        [H200, T4],
        "gpu(type='H200')",
        reason(
            "1 GPU (H200)",
            "this host shows 1 x NVIDIA H200, 1 x Tesla T4; Tesla T4 is not H200, "
            f"but CUDA_VISIBLE_DEVICES={H200['uuid']} would show what does",
        ),
    ),
    "mixed, and any will do": ([H200, T4], "gpu(2, min_memory_gib=16)", ""),
    "one of two": (
        [H200, T4],
        "gpu(2, type='T4')",
        reason(
            "2 GPUs (T4)",
            "this host shows 1 x NVIDIA H200, 1 x Tesla T4; NVIDIA H200 is not T4",
        ),
    ),
}


@pytest.mark.parametrize(("cards", "mark", "expected"), CASES.values(), ids=CASES)
def test_a_test_runs_where_its_cards_are(
    cards: list[dict[str, Any]], mark: str, expected: str, pytester: pytest.Pytester, host: Host
) -> None:
    host(*cards)
    assert skipped(pytester, mark) == expected


@pytest.mark.parametrize(
    ("variable", "value", "runs"),
    [
        ("CUDA_VISIBLE_DEVICES", "0", True),
        ("CUDA_VISIBLE_DEVICES", "1", False),
        ("CUDA_VISIBLE_DEVICES", "", False),
        ("CUDA_VISIBLE_DEVICES", f"{H200['uuid']},{T4['uuid']}", True),
        ("CUDA_VISIBLE_DEVICES", f"{T4['uuid']},{H200['uuid']}", False),
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID", True),
    ],
)
def test_the_first_card_that_the_process_sees_counts(
    variable: str,
    value: str,
    runs: bool,
    pytester: pytest.Pytester,
    host: Host,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host(H200, T4)
    monkeypatch.setenv(variable, value)
    assert (skipped(pytester, "gpu(type='H200')") == "") is runs


def test_variables_are_there_or_the_test_is_not_run(
    pytester: pytest.Pytester, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(H200)
    mark = "gpu(env={'NAME_A': '1', 'NAME_B': ''})"
    lack = "1 GPU (NAME_A=1, NAME_B=)", "this process has another {}, or none"
    assert skipped(pytester, mark) == reason(lack[0], lack[1].format("NAME_A, NAME_B"), "local")
    monkeypatch.setenv("NAME_A", "1")
    assert skipped(pytester, mark) == reason(lack[0], lack[1].format("NAME_B"), "local")
    monkeypatch.setenv("NAME_B", "")
    assert skipped(pytester, mark) == ""
    monkeypatch.setenv("NAME_A", "2")
    assert skipped(pytester, mark) == reason(lack[0], lack[1].format("NAME_A"), "local")


MIXED = """
    import pytest

    @pytest.mark.gpu(type="H200")
    def test_runs(): pass

    @pytest.mark.gpu(type="A100")
    def test_other_card(): pass

    @pytest.mark.gpu(env={"NAME_A": "1"})
    def test_variable(): pass

    def test_here(): pass
"""


def test_skips_are_counted_by_their_cause(pytester: pytest.Pytester, host: Host) -> None:
    host(H200)
    pytester.makepyfile(MIXED)
    result = run(pytester)
    result.assert_outcomes(passed=2, skipped=2)
    text = said(result)
    assert (
        "1 gpu test skipped for lack of GPUs on this host; pytest --remote=SPEC runs them" in text
    )
    assert (
        "1 gpu test skipped for lack of variables on this host; pytest --remote=local runs them"
        in text
    )


def test_where_gpus_are_required_each_lack_is_an_error(
    pytester: pytest.Pytester, host: Host
) -> None:
    host(H200)
    pytester.makepyfile(MIXED)
    result = run(pytester, "--gpu-required")
    result.assert_outcomes(passed=2, errors=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = said(result)
    assert "needs 1 GPU (A100), this host shows 1 x NVIDIA H200; NVIDIA H200 is not A100" in text
    assert "needs 1 GPU (NAME_A=1), this process has another NAME_A, or none" in text
    assert "no test with the gpu mark ran" not in text


def test_one_that_ran_is_enough_where_gpus_are_required(
    pytester: pytest.Pytester, host: Host
) -> None:
    host(H200)
    pytester.makepyfile(MIXED)
    assert run(pytester, "--gpu-required", "-k", "runs").ret == pytest.ExitCode.OK


def test_a_limit_is_not_kept_in_place(pytester: pytest.Pytester, host: Host) -> None:
    host(H200)
    pytester.makepyfile("""
        import pytest
        import time

        @pytest.mark.gpu(timeout=0.001)
        def test_slow(): time.sleep(0.01)
    """)
    run(pytester).assert_outcomes(passed=1)


def test_a_library_that_is_broken_shows_no_card(pytester: pytest.Pytester, host: Host) -> None:
    host(H200)
    cardfile.write_cards(pytester.path / "cards.json", [H200], broken="Driver Not Loaded")
    assert skipped(pytester, "gpu") == reason("1 GPU", "this host shows 0")


def test_a_variable_that_hides_cards_is_named(
    pytester: pytest.Pytester, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(H200)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "no card")
    why = "this host shows 0 (CUDA_VISIBLE_DEVICES is 'no card')"
    assert skipped(pytester, "gpu") == reason("1 GPU", why)
