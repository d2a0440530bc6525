"""``--remote-run-timeout``: at the limit far work ends, and the session's reports are complete."""

from __future__ import annotations

import time

import pytest

from fakes import Far, report
from pytest_remotegpu.protocol import events
from session.running import CPU, run, said
from stage import FAR, HERE, Stage

from .at_limit import hangs, is_deaf, judged, stop_of

LIMIT = "the run limit of 1 s (--remote-run-timeout) is reached"
ARGS = ("--remote-run-timeout=1", "--junitxml=../j.xml")


def waits_for_cards(far: Far) -> None:
    """Have no cards as yet, and leave when told to."""
    far.greet()
    far.say(events.Waiting(b"card 0: another session"))
    stop_of(far)
    far.say(events.Ended())


def test_the_running_test_has_timed_out_and_the_others_are_not_run(stage: Stage) -> None:
    played = stage.run(hangs(LIMIT), args=ARGS)
    judged(played, LIMIT, second=f"timed out: {LIMIT}")
    assert played.workers == 1
    written = (stage.path.parent / "j.xml").read_text()
    assert written.count("<testcase") == 5
    assert f"not run: {LIMIT}" in written


def test_a_worker_that_says_nothing_is_not_waited_for(stage: Stage) -> None:
    began = time.monotonic()
    played = stage.run(is_deaf, args=ARGS)
    judged(played, LIMIT, second=f"{LIMIT}, and its worker did not say what it did")
    assert time.monotonic() - began < 35  # it would have said nothing for ever


def test_cards_that_never_come_are_not_waited_for(stage: Stage) -> None:
    played = stage.run(waits_for_cards, args=ARGS)
    assert played.ret == pytest.ExitCode.TESTS_FAILED
    assert [played.texts[id] for id in FAR] == [f"not run: {LIMIT}"] * 3
    assert played.text.count("remote: waiting for 1 GPU: card 0: another session") == 1


def test_nothing_starts_after_the_limit(stage: Stage) -> None:
    """In order, with ``--maxfail``: a local test takes long, the shape after it never starts."""
    (stage.path / "test_far.py").rename(stage.path / "test_a_far.py")
    (stage.path / "test_here.py").write_text(
        "import time\ndef test_one(): time.sleep(1.2)\ndef test_two(): pass\n"
    )
    (stage.path / "test_z_far.py").write_text(
        "import pytest\n@pytest.mark.gpu(2)\ndef test_z(): raise AssertionError\n"
    )
    opened = []

    def serves(far: Far) -> None:
        opened.append(far.order.gpus)
        far.greet()
        far.serve()

    played = stage.run(serves, args=("--remote-run-timeout=1", "--maxfail=9"))
    assert opened == [1]
    assert played.texts["test_z_far.py::test_z"] == f"not run: {LIMIT}"
    assert played.verdicts(HERE) == ["passed"] * 2
    assert played.verdict("test_a_far.py::test_c") == "passed"
    assert played.ret == pytest.ExitCode.TESTS_FAILED


def test_a_limit_that_is_reached_too_late_to_matter_is_not_named(stage: Stage) -> None:
    (stage.path / "test_here.py").write_text(
        "import time\ndef test_one(): pass\ndef test_two(): time.sleep(1.2)\n"
    )

    def serves(far: Far) -> None:
        far.greet()
        far.serve()

    played = stage.run(serves, args=("--remote-run-timeout=1",))
    assert played.ret == pytest.ExitCode.OK
    assert "cause" not in played.text


def test_a_limit_that_is_not_reached_changes_nothing(stage: Stage) -> None:
    def serves(far: Far) -> None:
        far.greet()
        far.serve()

    played = stage.run(serves, args=("--remote-run-timeout=60",))
    assert played.ret == pytest.ExitCode.OK
    assert "run limit" not in played.text


def test_the_worker_is_told_while_a_local_test_runs(stage: Stage) -> None:
    """The limit is one of the far side, and waits for nobody here."""
    told = stage.waits_here()

    def script(far: Far) -> None:
        far.greet()
        far.say(events.Started(0), report(0, "setup"))
        stop = stop_of(far)
        told.touch()
        far.say(events.Crashed(0, stop.limit, b"", b"", b"", timeout=True), events.Ended())

    played = stage.run(script, args=ARGS)
    assert played.verdicts(HERE) == ["passed"] * 2
    assert played.texts[FAR[0]] == LIMIT
    assert played.ret == pytest.ExitCode.TESTS_FAILED


ENDLESS = """
    import os, time

    def pytest_sessionfinish():
        if "REMOTEGPU_WORKER" in os.environ:
            time.sleep(60)
            raise RuntimeError("and it fails")
"""


@pytest.mark.parametrize(
    ("limit", "named"),
    [
        ("--remote-run-timeout=5", "the run limit of 5 s (--remote-run-timeout) is reached"),
        ("--remote-max-cost=11", "the cost limit of $11.00 (--remote-max-cost) is reached"),
    ],
)
def test_a_session_whose_end_is_cut_short_is_not_green(
    limit: str, named: str, pytester: pytest.Pytester
) -> None:
    """All tests have passed; what a hook at the end would have said, nobody knows."""
    pytester.makeini("[pytest]\nremotegpu_prices = local:cpu = 3600\n")
    pytester.makeconftest(ENDLESS)
    pytester.makepyfile("import pytest\n@pytest.mark.gpu\ndef test_far(): pass\n")
    result = run(pytester, CPU, limit)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert f"cause: the end of the session on local-1 was cut short: {named}" in said(result)


def test_a_worker_that_hears_no_limit_at_its_end_is_no_green_session(stage: Stage) -> None:
    (stage.path / "test_here.py").write_text(
        "import time\ndef test_one(): time.sleep(1.5)\ndef test_two(): pass\n"
    )

    def hears_nothing(far: Far) -> None:
        far.greet()
        far.run(0, 1, 2)
        far.say(events.StretchEnded())
        far.stopped.wait(40)

    played = stage.run(hears_nothing, args=("--remote-run-timeout=1",))
    assert played.verdicts((*FAR, *HERE)) == ["passed"] * 5
    assert played.ret == pytest.ExitCode.TESTS_FAILED
    assert f"has not ended, although {LIMIT}" in played.text


@pytest.mark.parametrize("args", [(), ("-n1",)], ids=["alone", "xdist"])
def test_a_real_worker_ends_its_test(args: tuple[str, ...], pytester: pytest.Pytester) -> None:
    if args:
        pytest.importorskip("xdist")
    pytester.makepyfile("""
        import time
        import pytest

        def test_here(): pass

        @pytest.mark.gpu
        def test_before(): pass

        @pytest.mark.gpu
        def test_long():
            print("said before the end")
            time.sleep(60)

        @pytest.mark.gpu
        def test_after(): pass

        def test_here_too(): pass
    """)
    result = run(pytester, CPU, "--remote-run-timeout=8", "-rA", "--junitxml=j.xml", *args)
    text = said(result)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=3, failed=1, errors=1)
    assert "timed out: the run limit of 8 s (--remote-run-timeout) is reached" in text
    assert "said before the end" in text
    assert "in test_long" in text
    assert "not run: the run limit of 8 s (--remote-run-timeout) is reached" in text
    assert pytester.path.joinpath("j.xml").read_text().count("<testcase") == 5
