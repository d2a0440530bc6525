"""The sweep as tests: no row is lost, each kernel is the one that was asked for, a document."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_remotegpu.bench.fa2 import answering, document, host, judging
from pytest_remotegpu.bench.fa2.asking import Asked
from pytest_remotegpu.bench.fa2.document import Document
from pytest_remotegpu.bench.fa2.measuring import measure
from pytest_remotegpu.bench.fa2.rows import FA2, MASKED, Parity
from pytest_remotegpu.bench.fa2.sweep import Sweep

pytestmark = pytest.mark.gpu(min_capability=8.0, timeout=1200)


@pytest.fixture(scope="module")
def measured(wanted: Sweep, here: host.Host, tmp_path_factory: pytest.TempPathFactory) -> Document:
    """Make the sweep, once for all tests of this file."""
    folder = tmp_path_factory.mktemp("fa2")
    asked = Asked(wanted, repetitions=wanted.repetitions, out=str(folder), away=True)
    measure(asked, here)
    return document.read(folder / document.NAME)


def test_each_row_has_times_or_a_reason(measured: Document, wanted: Sweep) -> None:
    rows = measured.measured.rows
    names = {row.column for row in rows}
    assert {*wanted.names} <= names
    count = len(wanted.problems()) * len(names) * len(wanted.regimes) * wanted.repetitions
    assert len(rows) == count
    assert [row for row in rows if not row.times and not row.why] == []


def test_what_was_timed_is_right(measured: Document) -> None:
    wrong = {
        (row.column, row.why)
        for row in measured.measured.rows
        if row.times and row.parity is not Parity.PASSED
    }
    assert wrong == set()


def test_no_kernel_was_another_one_than_asked_for(measured: Document) -> None:
    fallen = {row.why for row in measured.measured.rows if "was asked for, and what ran" in row.why}
    assert fallen == set()
    if measured.measured.device.cuda_available:
        timed = [row for row in measured.measured.rows if row.times]
        assert all(row.kernels for row in timed)


def test_thresholds(measured: Document, here: host.Host, artifacts_dir: Path) -> None:
    """Whatever they are: a faster or a slower card is no failure. Without one there are none."""
    found = measured.measured
    question = judging.Question(margin=found.sweep["margin"])
    path = artifacts_dir / document.NAME
    document.write(path, found, question)
    status = answering.settle(artifacts_dir, question, print, update=answering.Update())
    assert (artifacts_dir / "report.md").exists()
    if here.device.is_card:
        timed = {row.column for row in found.rows if row.times}
        assert {MASKED, FA2} <= timed, "torch 2.11 or newer is needed for FlashAttention-2"
        assert status == 0
    else:
        assert status == 5
        assert "no card was used" in found.notes[0]
