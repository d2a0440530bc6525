"""Where what a run may cost leaves no room for a further worker, the others run the tests."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time

import pytest

import fakes
from fakes import Far, report
from pytest_remotegpu.backends.base import Price
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import events, orders
from stage import FAR, HERE, PASSED, Stage

from .running import run, said

TWO = "--remote-workers=2"
CAP = "the cost limit of $80.00 (--remote-max-cost) is reached"
NOTE = f"note: a worker for 1 GPU is done without: {CAP}"


@pytest.fixture(autouse=True)
def _machines_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dollar a second; one that was lost is paid for half a minute longer.

    Two workers cost 76 dollars to their ends; beside one that was lost there is no room for two.
    """

    def price(_self: object, _shape: Shape) -> Price:
        return Price(3600.0, "2026-01-01", after=30.0)

    monkeypatch.setattr(fakes.Scripted, "price", price, raising=False)


def begins(far: Far) -> orders.Run:
    """Greet, collect, and be handed the first tests."""
    far.greet()
    far.say(events.StretchEnded())
    first = far.next_run()
    assert isinstance(first, orders.Run)
    return first


def is_lost(far: Far) -> None:
    """Be lost in the first test."""
    first = begins(far).first
    far.say(events.Started(first), report(first, "setup"))


def is_lost_idle(far: Far) -> None:
    """Be lost before the first test."""
    far.greet()
    _ = far.order


def serves_later(far: Far) -> None:
    """Be an honest worker that comes when the other one has begun."""
    time.sleep(0.3)
    far.greet()
    far.serve()


@pytest.mark.parametrize("lost", [is_lost, is_lost_idle], ids=["in a test", "idle"])
def test_those_that_are_there_run_all(lost: fakes.Script, stage: Stage) -> None:
    """The test that ran on the one that was lost is theirs, too."""
    played = stage.run(lost, serves_later, args=(TWO, "--remote-max-cost=80"))
    assert played.ret == 0, played.text
    assert [played.phases[id] for id in (*FAR, *HERE)] == [PASSED] * 5
    assert played.workers == 2
    assert played.text.count(NOTE) == 1, played.text


def test_without_any_each_test_says_why_it_has_not_run(stage: Stage) -> None:
    played = stage.run(is_lost, args=(TWO, "--remote-max-cost=80"))
    assert played.workers == 2
    played.caught(said=f"cause: {CAP}")
    ran = [id for id in FAR if "lost twice while this test ran" in played.texts[id]]
    assert len(ran) < 2
    others = [id for id in FAR if id not in ran]
    assert all(played.texts[id] == f"not run: {CAP}" for id in others), played.texts


def test_with_room_for_another_the_lost_one_is_replaced(stage: Stage) -> None:
    """What the tests above see is the cost limit's doing."""
    played = stage.run(is_lost, serves_later, args=(TWO, "--remote-max-cost=120"))
    assert played.ret == 0, played.text
    assert "done without" not in played.text
    assert played.workers == 3


BACKEND = """
    from fakes import OneRequest
    from pytest_remotegpu.backends.base import Price

    class Stays(OneRequest):
        def price(self, shape):
            return Price(3600.0, "2026-01-01", after=30.0)

    def make(rest, site):
        return Stays()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for a worker's processes in /proc")
def test_a_process_of_xdist_that_may_have_no_further_one_says_so(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tests are errors with that reason; those of the other process run."""
    pytest.importorskip("xdist")
    home = pytester.mkdir("plugin")
    shutil.copy(fakes.__file__, home)
    info = home / "stays-0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: stays\nVersion: 0\n")
    info.joinpath("entry_points.txt").write_text(
        "[pytest_remotegpu.backends]\nstays = stays_backend:make\n"
    )
    pytester.path.joinpath("plugin/stays_backend.py").write_text(textwrap.dedent(BACKEND))
    monkeypatch.setenv("PYTHONPATH", str(home))
    pytester.makepyfile(
        test_one="""
        import os, pathlib, time, pytest
        pytestmark = pytest.mark.gpu

        def test_loses_its_worker():
            above = os.getpid()
            while b"pytest_remotegpu.worker" in pathlib.Path(f"/proc/{above}/cmdline").read_bytes():
                found, stat = above, pathlib.Path(f"/proc/{above}/stat").read_text()
                above = int(stat.rpartition(")")[2].split()[1])
            os.kill(found, 9)
            time.sleep(60)

        def test_after_it(): pass
        """,
        test_other="""
        import pytest
        pytestmark = pytest.mark.gpu

        @pytest.mark.parametrize("number", range(3))
        def test_there(number): pass
        """,
    )
    args = ("-n2", "--dist=loadfile", "--remote-max-cost=100", "-rA")
    result = run(pytester, "--remote=stays", *args)
    text = said(result)
    cap = "the cost limit of $100.00 (--remote-max-cost) is reached"
    assert result.ret == pytest.ExitCode.TESTS_FAILED, text
    result.assert_outcomes(passed=3, errors=2)
    assert text.count(f"not run: {cap}") >= 2, text
    assert f"\ncause: {cap}" in text
