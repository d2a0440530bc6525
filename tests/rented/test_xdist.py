"""``-n N`` with Modal: each process ships to containers of its own, all of one deployment."""

from __future__ import annotations

import json
import os
import re
import signal
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from loopback import LoopbackModal
from loopback.containers import Container
from session.running import Started, run, said, until

pytest.importorskip("xdist")

T4 = "--remote=modal:T4"
MIXED = """
    import os, signal, time, warnings, pytest

    @pytest.mark.gpu
    @pytest.mark.parametrize("number", range(4))
    def test_passes(number, artifacts_dir):
        (artifacts_dir / "from.txt").write_text(os.environ["MODAL_TASK_ID"])
        time.sleep(0.5)

    @pytest.mark.gpu
    def test_fails(): assert 1 == 2

    @pytest.mark.gpu
    def test_crashes(): os.kill(os.getpid(), signal.SIGSEGV)

    @pytest.mark.gpu
    def test_skips(): pytest.skip("not today")

    @pytest.mark.gpu
    def test_warns(): warnings.warn("odd", UserWarning)

    def test_here():
        assert "MODAL_TASK_ID" not in os.environ
"""


def test_outcomes(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """One session is shown, with one deployment and one bill."""
    pytester.makepyfile(MIXED)
    first = run(
        pytester, "-n2", T4, "-rA", "--junitxml=j.xml", "--remote-json=run.json", "--durations=0"
    )
    text = said(first)
    first.assert_outcomes(passed=6, failed=2, skipped=1, warnings=1)
    assert first.ret == 1
    assert text.count("] deployed rgpu-") == 1, text
    assert re.search(r"^remote: no uv\.lock, .* is there; on the far side", text, re.MULTILINE)
    assert text.count("no uv.lock") == 1, text
    assert len(service.deploys) == 1
    assert [container.gpu for container in service.containers] == ["T4:1", "T4:1"]
    tasks = {
        path.read_text()
        for path in pytester.path.glob(".pytest_cache/d/remotegpu/artifacts/*/from.txt")
    }
    assert tasks == {container.id for container in service.containers}
    assert re.search(r"1 GPU +2 workers +8 tests", text), text
    assert text.count("cost: at most") == 1
    (page,) = re.findall(r"^remote: rgpu-\w+ is shown at (https://.*)$", text, re.MULTILINE)
    assert text.index("is shown at") < text.index("= FAILURES =")
    data = json.loads(pytester.path.joinpath("run.json").read_text())
    assert data["backend"]["pages"] == [page]
    bills = [worker["cost_usd"] for worker in data["workers"]]
    assert len(bills) == 2
    assert all(bills)
    properties = [
        float(one.get("value", ""))
        for one in ET.parse(pytester.path / "j.xml").getroot().iter("property")  # noqa: S314
        if one.get("name") == "remotegpu_cost_usd"
    ]
    assert max(properties) == pytest.approx(sum(bills), abs=1e-6)  # of the session; then the tests'
    assert 0 < sum(properties) - max(properties) < sum(bills)
    second = run(pytester, "-n2", T4)
    second.assert_outcomes(passed=6, failed=2, skipped=1, warnings=1)
    assert "deploys" not in said(second)
    assert (len(service.deploys), len(service.containers)) == (1, 2)


def test_as_many_containers_as_processes(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """More than eight, which is the limit otherwise: none has to wait for another one's end."""
    pytester.makepyfile("import pytest\n\n@pytest.mark.gpu\ndef test_one(): pass\n")
    run(pytester, "-n9", T4).assert_outcomes(passed=1)
    [container] = service.containers
    assert container.definition.autoscaler_settings.max_containers == 9


@pytest.mark.parametrize("only", ["both", "there"])
def test_who_collects(pytester: pytest.Pytester, service: LoopbackModal, only: str) -> None:
    """No process rents a machine to collect what it can import, unless that is asked for."""
    pytester.makepyfile(f"""
        import os, pytest

        if {only == "there"} and "REMOTEGPU_WORKER" not in os.environ:
            import only_on_the_far_side

        @pytest.mark.gpu
        def test_one(): pass
    """)
    run(pytester, "-n2", T4).assert_outcomes(passed=1)
    assert len(service.containers) == (1 if only == "both" else 2)
    run(pytester, "-n2", T4, "-o", "remotegpu_collect=far").assert_outcomes(passed=1)
    assert len(service.containers) == 2


def test_a_container_goes(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    pytester.makepyfile(MIXED)
    service.faults.lose(after=4)
    result = run(pytester, "-n2", T4)
    result.assert_outcomes(passed=6, failed=2, skipped=1, warnings=1)
    assert "lost" in said(result)


def test_the_first_failure_ends_it(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    pytester.makepyfile("""
        import time, pytest

        @pytest.mark.gpu
        def test_fails(): assert 1 == 2

        @pytest.mark.gpu
        @pytest.mark.parametrize("number", range(20))
        def test_other(number): time.sleep(0.5)
    """)
    result = run(pytester, "-n2", T4, "-x")
    assert result.ret == 2
    found = result.parseoutcomes()
    assert found["failed"] == 1
    assert found.get("passed", 0) < 10
    service.wait_until(lambda: all(each.current is None for each in service.running))


def test_all_processes_share_the_cap(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """What both together may cost at most is refused above it, not what each of them may."""
    pytester.makepyfile("""
        import time, pytest

        @pytest.mark.gpu
        @pytest.mark.parametrize("number", range(4))
        def test_one(number): time.sleep(0.3)
    """)
    # two workers of 3600 s, with their ends and idle time, come to 1.21 USD, one to 0.61
    refused = run(pytester, "-n2", T4, "--remote-max-cost=0.9")
    assert refused.ret == 4
    assert "--remote-max-cost" in said(refused)
    assert service.calls == []
    allowed = run(pytester, "-n2", T4, "--remote-max-cost=1.3")
    allowed.assert_outcomes(passed=4)
    allowed.stdout.fnmatch_lines(["*cost: about $*of at most $1.21*"])


def test_no_test_can_run(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    pytester.makepyfile(MIXED)
    service.faults.build_failure = "ninja: build stopped: subcommand failed."
    result = run(pytester, "-n2", T4)
    result.assert_outcomes(passed=1, errors=8)
    assert result.ret == 1
    assert "ninja: build stopped" in said(result)


def test_a_bad_token(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    pytester.makepyfile(MIXED)
    service.faults.token = ("ak-other", "as-other")
    result = run(pytester, "-n2", T4)
    assert result.ret == 4
    assert "modal token new" in said(result)
    assert service.containers == []


def test_a_card_that_is_too_old(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    pytester.mkpydir("flash_attn")
    pytester.makepyfile("""
        import flash_attn
        import pytest

        @pytest.mark.gpu
        def test_one(): pass
    """)
    result = run(pytester, "-n2", T4)
    assert result.ret == 4
    assert "imports flash_attn" in said(result)
    assert service.calls == []


LONG = """
    import pathlib, time, pytest

    @pytest.mark.gpu
    @pytest.mark.parametrize("number", range(2))
    def test_long(number):
        pathlib.Path({folder!r}, f"has-begun-{{number}}").touch()
        time.sleep(60)
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["Ctrl-C", "kill -9"])
@pytest.mark.parametrize("ephemeral", [False, True])
def test_ends(
    pytester: pytest.Pytester, service: LoopbackModal, how: str, *, ephemeral: bool
) -> None:
    """No work is left in a container, and with an app of the session alone no container."""
    pytester.makepyfile(LONG.format(folder=str(pytester.path)))
    more = ["--remote-ephemeral"] if ephemeral else []
    with Started(pytester, "-n2", T4, *more) as session:
        begun = [pytester.path / f"has-begun-{number}" for number in range(2)]
        # two processes and two containers start, which takes long where the machine has more to do
        until(lambda: all(map(Path.exists, begun)) or session.process.poll() is not None, 100)
        assert [path.name for path in begun if not path.exists()] == [], session.text
        number = signal.SIGINT if how == "Ctrl-C" else signal.SIGKILL
        session.process.send_signal(number)
        assert session.end() == (2 if how == "Ctrl-C" else -number)
        service.wait_until(lambda: all(each.current is None for each in service.running), 25)
        if ephemeral:
            service.wait_until(lambda: not service.running, 75)
        assert until(lambda: not session.living())


# what is said to be left


UNEVEN = """
    import os, pathlib, time, pytest

    FOLDER = pathlib.Path({folder!r})
    BEFORE = []

    def wait(name):
        (FOLDER / name).touch()
        while not (FOLDER / "go").exists():
            time.sleep(0.1)

    @pytest.mark.gpu
    @pytest.mark.parametrize("number", range(4))
    def test_it(number):
        if {first} and number == 0:
            wait("has-begun-0")
        elif not {first} and BEFORE:
            wait("waits-" + os.environ["MODAL_TASK_ID"])
        BEFORE.append(number)
"""


def at_work(service: LoopbackModal) -> list[Container]:
    return [each for each in service.running if each.current is not None]


def left(pytester: pytest.Pytester) -> dict[str, bool]:
    """Say which machines a run has left, by its record, and whether that is certain."""
    told = json.loads(pytester.path.joinpath("run.json").read_text())["left_running"]
    found = {each["machine"]: each["confirmed"] for each in told}
    assert len(found) == len(told), told
    return found


@pytest.mark.timeout(120)
def test_what_has_ended_before_the_session_is_not_left(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """A container that was lost, and one whose process was done long before the others."""
    pytester.makepyfile(UNEVEN.format(folder=str(pytester.path), first=True))
    args = ["-n2", T4, "-o", "remotegpu_idle=5", "--remote-json=run.json", "-v"]
    with Started(pytester, *args) as session:
        begun = pytester.path / "has-begun-0"
        assert until(lambda: begun.exists() and "[gw1]" in session.text)
        service.wait_until(lambda: len(at_work(service)) == 1, 20)
        service.lose(*at_work(service))
        begun.unlink()
        assert until(begun.exists)
        service.wait_until(lambda: service.running == at_work(service), 30)
        (pytester.path / "go").touch()
        assert session.end() == 0, session.text
        there = [each.id for each in service.running]
    assert len(service.containers) >= 2
    assert left(pytester) == dict.fromkeys(there, True)
    assert len(there) == 1
    assert "left running: 1 machine without work, paid for until" in session.text


@pytest.mark.timeout(120)
def test_what_a_process_has_had_that_was_killed_may_be_left(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(UNEVEN.format(folder=str(pytester.path), first=False))
    args = ["-n2", T4, "-o", "remotegpu_idle=30", "--remote-json=run.json"]
    with Started(pytester, *args) as session:
        assert until(lambda: len(list(pytester.path.glob("waits-*"))) == 2), session.text
        session.wait_for("..")
        (killed, _) = (
            pid
            for pid in session.living()
            if b"stdin.readline" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(killed, signal.SIGKILL)
        session.wait_for("node down")
        (pytester.path / "go").touch()
        assert session.end() == 1, session.text
        there = [each.id for each in service.running]
    told = left(pytester)
    assert told.keys() == set(there)
    assert sorted(told.values()) == [False, True]
    text = session.text
    assert "left running: 1 machine without work, paid for until" in text
    assert "left running: a machine may still start or be at work, since the end of that" in text
    (line,) = re.findall(r"^1 GPU   (\d) workers   ", text, re.MULTILINE)
    assert int(line) == len(re.findall(r"^  modal-gw\d-\d   ", text, re.MULTILINE))
