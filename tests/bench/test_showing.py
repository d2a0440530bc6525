"""What people see of a sweep: the terminal's tables, the report, the picture."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from bench.sweeps import CARD, grows, made
from pytest_remotegpu.bench.estimates import Estimate
from pytest_remotegpu.bench.fa2 import charts, judging, pictures, report, showing
from pytest_remotegpu.bench.fa2.document import from_plain
from pytest_remotegpu.bench.fa2.judging import Question
from pytest_remotegpu.bench.fa2.measured import Device, Measured
from pytest_remotegpu.bench.fa2.rows import FA2, MASKED, Parity, Problem, Regime

DEVICE = Question(Regime.DEVICE)
MAP = """\
sliding, forward, bfloat16, B=1 G=2 h=2 Dk=64 Dv=64: times faster than masked
eager time                            device time
        w=32    w=64    w=128  w=256          w=32     w=64    w=128   w=256
S=256   0.50    0.30    0.30   0.30   S=256   2.00 ✓   1.00    0.50    0.30
S=512   1.00    0.50    0.30   0.30   S=512   4.00 ✓   2.00 ✓  1.00    0.50
S=1024  2.00 ✓  1.00    0.50   0.30   S=1024  8.00 ✓   4.00 ✓  2.00 ✓  1.00
S=2048  4.00 ✓  2.00 ✓  1.00   0.50   S=2048  16.00 ✓  8.00 ✓  4.00 ✓  2.00 ✓
"""


def maps(measured: Measured, question: Question = DEVICE) -> str:
    judgement = judging.judge(measured, question)
    return "".join(f"{line}\n" for line in showing.maps(measured, judgement))


def decided(measured: Measured, question: Question = DEVICE) -> str:
    judgement = judging.judge(measured, question)
    return "".join(f"{line}\n" for line in showing.decided(measured, judgement))


def sometimes(problem: Problem, regime: Regime, reference: str, repetition: int) -> float:
    """Be slow at one problem in the second repetition."""
    if (problem.length, problem.window, repetition) == (1024, 64, 2):
        return 1.0
    return grows(problem, regime, reference, repetition)


# the terminal


def test_the_map_with_both_regimes_side_by_side() -> None:
    text = maps(made())
    assert text.startswith(MAP)
    assert "S=512 w=64    0.50 (0.50 to 0.50)    2.00 (2.00 to 2.00) ✓\n" in text
    assert "S=1024 (num_cmp 63)   0.50 (0.50 to 0.50)  2.00 (2.00 to 2.00) ✓\n" in text
    assert "times faster than sdpa-flash" in text
    assert text.endswith("in parentheses the interval in which the median lies\n")


def test_what_only_some_repetitions_keep_is_marked() -> None:
    text = maps(made(sometimes, repetitions=2))
    assert re.search(r"^S=1024 w=64 .* 1\.00 \(1\.00 to 4\.00\) ~$", text, re.MULTILINE)


def test_cells_that_are_not_there() -> None:
    assert charts.speed(None) == "-"
    assert charts.speed(Estimate.exactly(float("nan"))) == "none"
    rows = tuple(
        row
        for row in made().rows
        if (row.problem.length, row.problem.window, row.regime) != (512, 64, Regime.EAGER)
    )
    text = maps(replace(made(), rows=rows))
    assert re.search(r"^S=512 w=64 +- +2\.00", text, re.MULTILINE)
    assert re.search(r"^S=512 +1\.00 +- ", text, re.MULTILINE)


def test_thresholds_for_each_margin_reference_and_regime() -> None:
    text = decided(made(repetitions=3), Question(Regime.DEVICE, 1.35))
    for margin in ("1.1 (10 % faster)", "1.2 (20 % faster)", "1.35 (35 % faster)"):
        found = re.search(
            rf"^fa2_min_len_win +{re.escape(margin)} +masked +never in 3 runs +"
            r"from S = 2048 in 3 runs$",
            text,
            re.MULTILINE,
        )
        assert found, text
    assert text.count("sdpa-flash") == 2 * 4
    assert "asked for: device time, margin 1.35 (35 % faster) against masked\n" in text


def test_why_and_what_no_scalar_can_express() -> None:
    text = decided(made())
    assert (
        "fa2_min_len_win 2048: from S = 2048 in one run\n"
        "  because at S = 1024 the speedup is 1.00 (1.00 to 1.00), for certain 1: below 1.2\n"
    ) in text
    assert "no scalar can express 6 cells that keep 1.2 too: S=256 w=32, S=512 w=32" in text
    assert (
        "the rule in two dimensions: w <= 32: from S = 256; w <= 64: from S = 512; "
        "w <= 128: from S = 1024; w <= 256: from S = 2048\n"
    ) in text
    assert "fa2_min_len_win 999999: never in one run\n" in decided(made(), Question())


def test_unequal_repetitions_are_explained() -> None:
    text = decided(made(sometimes, repetitions=2), Question(Regime.DEVICE, windows=(64,)))
    assert "fa2_min_len_win 2048: from S = 512 to from S = 2048 in 2 runs\n" in text
    assert "the repetitions differ, and the latest is the one to be safe with" in text
    assert "in the first: at S = 256 the speedup is 1.00" in text


def test_what_blocks_a_recommendation_is_said() -> None:
    text = decided(made(device=Device(cuda_available=False)))
    assert "fa2_min_len_win stays as it is: from S = 2048 in one run\n" in text
    assert text.endswith("nothing is recommended: no card was used\n")


def test_a_card_that_was_held_back_is_told() -> None:
    measured = replace(made(), states=({"held_back": ["power cap"]},), notes=("a note",))
    assert decided(measured).endswith("the card was held back meanwhile: power cap\na note\n")


# the report


def test_the_report() -> None:
    text = report.markdown(made(repetitions=2), DEVICE, picture="maps.png")
    assert text.startswith("# FlashAttention-2: from which length on\n")
    for line in (
        "| card | NVIDIA H200 |",
        "| driver | 580.65.06 |",
        "| torch | 2.13.0 |",
        "| commit | 0123456789abcdef |",
        "| measured | 2026-05-25T14:03:12Z to 2026-05-25T14:09:40Z |",
        "| asked for | device time, margin 1.2 (20 % faster) against masked |",
        (
            "| `runtime.fa2_min_len_win` | 2048: from S = 2048 in 2 runs "
            "| at S = 1024 the speedup is "
            "1.00 (1.00 to 1.00), for certain 1: below 1.2 |"
        ),
        (
            "| fa2_min_len_cmp | 1.5 (50 % faster) | masked | never in 2 runs "
            "| from num_cmp = 63 in 2 runs |"
        ),
        "![maps](maps.png)",
        (
            "| 512 | 4.00 (4.00 to 4.00) ✓ | 2.00 (2.00 to 2.00) ✓ | 1.00 (1.00 to 1.00) "
            "| 0.50 (0.50 to 0.50) |"
        ),
        "| fa2 | forward | `pytorch_flash::flash_fwd_splitkv_kernel<64>` | 80 |",
        "Against float32: **passed**.",
        "2 comparisons passed.",
        "fa2 was slow",
        "- nothing held it back",
        (
            "| S=256 w=32 (sliding, forward, bfloat16, B=1 G=2 h=2 Dk=64 Dv=64) | eager | 0.0625 "
            "| 0.0375 | 0.1250 |"
        ),
    ):
        assert f"{line}\n" in text


def test_tables_of_the_report_are_tables() -> None:
    """Each row has as many cells as its head."""
    text = report.markdown(made(sometimes, repetitions=2), DEVICE)
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.count(" | ") for line in block.splitlines() if "---" not in line}) == 1


def test_the_report_says_what_is_wrong() -> None:
    measured = made()
    broken = tuple(
        replace(row, parity=Parity.FAILED, why="error 0.3 | not 0.01")
        if (row.column, row.problem.length, row.problem.window) == (FA2, 512, 64)
        else replace(row, times=(), why="out of memory")
        if row.column == MASKED and row.problem.length == 2048
        else row
        for row in measured.rows
    )
    state = {"before": {"watts": 71.5, "celsius": 40}, "held_back": ["thermal slowdown"]}
    measured = replace(
        measured,
        rows=broken,
        states=(state, {"after": {"watts": 690.0}}),
        cost={"total": 0.01234, "currency": "USD", "where": "Modal"},
        complete=False,
    )
    text = report.markdown(measured, DEVICE, unread=("line 1 was not understood: a",))
    assert "**Nothing is recommended: fa2 differs from float32 at S=512 w=64 (sliding" in text
    assert "- fa2 failed for S=512 w=64 (sliding, forward" in text
    assert "- masked was not timed for S=2048 w=32 (sliding" in text
    assert "- **held back by: thermal slowdown**\n- watts: 71.5 to 690\n- celsius: 40 to 40" in text
    assert "| cost | 0.0123 USD, Modal |\n" in text
    assert "**The sweep has not come to its end" in text
    assert text.endswith("## Not understood\n\n- line 1 was not understood: a\n")


def test_a_report_of_what_others_have_written() -> None:
    lines = "S=256 w=64 sliding masked 0.30 ms  fa2 0.20 ms  speedup x1.50"
    found = from_plain({"benchmark_output": lines, "parity_passed": True})
    text = report.markdown(found.measured, Question())
    assert "| 256 | 1.50 ✓ |\n" in text
    assert "Kernels" not in text
    assert "| measured | not said |\n" in text


# the picture


def test_the_picture_is_a_png() -> None:
    pytest.importorskip("matplotlib")
    found = pictures.draw(made(), DEVICE)
    assert found is not None
    assert found.startswith(b"\x89PNG\r\n")
    assert len(found) > 10_000
    rows = tuple(row for row in made().rows if row.problem.window is None)
    assert pictures.draw(Measured(CARD, rows), DEVICE) is None


def test_without_matplotlib_there_is_none() -> None:
    script = (
        "import sys; sys.modules['matplotlib'] = None; sys.path.insert(0, 'tests')\n"
        "from bench.sweeps import made\n"
        "from pytest_remotegpu.bench.fa2 import pictures\n"
        "from pytest_remotegpu.bench.fa2.judging import Question\n"
        "print(pictures.draw(made(), Question()), pictures.available())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "None False\n"
