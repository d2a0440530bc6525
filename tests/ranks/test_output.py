"""What ranks write and leave: live under their names, in logs, in files; and options."""

from __future__ import annotations

import re

import pytest

from .test_sessions import TORCHRUN, block, outcomes, run


def test_live_lines_bear_the_rank(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""
        import os, sys
        import pytest
        {TORCHRUN}
        @pytest.mark.parametrize("i", range(3))
        def test_talk(rank, i):
            print("hello", os.environ["RANK"], i)
            sys.stdout.write("no end")
            os.write(2, b"past python\\n")
    """)
    text = run(pytester, "-s")
    assert "3 passed" in text
    for i in range(3):
        for rank in (0, 1):
            assert text.count(f"[rank {rank}] hello {rank} {i}\n") == 1
    assert text.count("[rank 0] no end\n") == 3
    assert text.splitlines().count("[rank 1] past python") == 3
    assert not re.search(r"^(hello|no end|past)", text, re.MULTILINE)


def test_a_failed_test_leaves_the_log_of_each_rank(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""
        import sys, time
        import pytest
        {TORCHRUN}

        def test_fails(rank, artifacts_dir):
            print("out of", rank)
            print("err of", rank, file=sys.stderr)
            (artifacts_dir / "mine.txt").write_text(str(rank))
            assert rank

        @pytest.mark.gpu(timeout=2)
        def test_late(rank):
            print("early in", rank)
            time.sleep(60 * rank)

        def test_passes_with_a_word(rank):
            print("silent ranks are better")
            if rank: print("beware", file=sys.stderr)

        def test_passes_with_the_same_word(): print("all of us", file=sys.stderr)
    """)
    text = run(pytester, "--remote-artifacts=kept", "-p", "no:cacheprovider")
    kept = {path.name: path for path in (pytester.path / "kept").iterdir()}
    (fails,) = [path for name, path in kept.items() if "test_fails" in name]
    for rank in "01":
        log = (fails / f"rank{rank}.log").read_text()
        assert f"out of {rank}" in log
        assert f"err of {rank}" in log
        assert (fails / f"rank{rank}" / "mine.txt").read_text() == rank
    assert "== call: failed" in (fails / "rank0.log").read_text()
    assert "assert 0" in (fails / "rank0.log").read_text()
    assert "== call: passed" in (fails / "rank1.log").read_text()
    (late,) = [path for name, path in kept.items() if "test_late" in name]
    assert "== was stopped when the test was too late" in (late / "rank1.log").read_text()
    assert "in test_late" in (late / "rank1.log").read_text()
    assert "early in 1" in block(text, "test_late")
    assert len(kept) == 2
    assert "test_passes_with_a_word passed, and rank 1 alone wrote to stderr: beware" in text
    assert "same_word passed, and" not in text


OPTIONS = f"""
    import pytest
    {TORCHRUN}

    def test_a(): pass
    def test_b(rank): assert rank
    def test_c(): pass

    @pytest.mark.slow
    def test_slow(): raise SystemExit("not selected")
"""


def test_selection_limits_and_report_files(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers = slow: takes long\n")
    pytester.makepyfile(OPTIONS)
    text = run(pytester, "-m", "not slow", "--maxfail=1", "--junitxml=junit.xml")
    assert list(outcomes(text).values()) == ["PASSED", "FAILED"]
    assert "1 failed, 1 passed, 1 deselected" in text
    assert "stopping after 1 failures" in text
    assert (pytester.path / "junit.xml").read_text().count("<testcase") == 2


@pytest.mark.parametrize("far", [("-n", "2"), ("-o", "remotegpu_collect=far")], ids=["n2", "far"])
def test_other_ways_to_the_far_side(far: tuple[str, ...], pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers = slow: takes long\n")
    pytester.makepyfile(OPTIONS)
    text = run(pytester, "-m", "not slow", *far)
    assert "1 failed, 2 passed" in text
    assert "rank 0: failed first, in call\nrank 1: passed" in text


def test_a_file_that_only_some_ranks_can_collect(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_some=f"""
        import os
        import pytest
        {TORCHRUN}
        if os.environ.get("RANK") == "1": raise ImportError("not for me")
        def test_it(): pass
        """,
        test_many=f"""
        import os
        import pytest
        {TORCHRUN}
        many = 3 if os.environ.get("RANK") != "1" else 2
        @pytest.mark.parametrize("i", range(many))
        def test_number(i): pass
        """,
    )
    text = run(pytester)
    assert "on rank 1: " in text
    assert "ImportError: not for me" in text
    assert outcomes(text)["test_number[0]"] == "PASSED"
    assert outcomes(text)["test_it"] == "ERROR"
    assert "the ranks do not agree that this test is there: rank 0 found it; rank 1 did not" in text


def test_without_a_far_side_it_is_skipped_and_so_said(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(OPTIONS)
    text = run(pytester, "-rs", "-W", "ignore", cpu="-p no:cacheprovider")
    assert "4 skipped" in text
    assert "needs 2 GPUs by 2 ranks of torchrun" in text
