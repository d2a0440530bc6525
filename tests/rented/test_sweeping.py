"""What `remotegpu gc` takes away of what sessions have left at Modal."""

from __future__ import annotations

import pytest

from loopback import LoopbackModal
from session.running import Started, run, until

from .test_command import remotegpu

T4 = "--remote=modal:T4"
DAY = 86400.0
TEST = """
    import pytest

    @pytest.mark.gpu
    def test_one(): pass
"""


WAITING = """
    import pathlib, time, pytest

    @pytest.mark.gpu
    def test_one():
        pathlib.Path({begun!r}).touch()
        while not pathlib.Path({go!r}).exists():
            time.sleep(0.05)
"""


def lines(*words: str) -> list[str]:
    """Give what a command says of Modal."""
    return [line for line in remotegpu(*words).splitlines() if line.startswith("modal")]


def forget_notes(service: LoopbackModal) -> None:
    """Have the notes gone, as the service does after a week."""
    for content in service.world.dicts.values():
        content.clear()


@pytest.mark.timeout(180)
def test_an_app_that_sessions_do_not_use_any_more(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """While one does, and for weeks, nothing of it is touched, however old all of it looks."""
    begun, go = pytester.path / "has-begun", pytester.path / "go"
    pytester.makepyfile(WAITING.format(begun=str(begun), go=str(go)))
    with Started(pytester, T4) as session:
        assert until(begun.exists)
        service.age(40 * DAY)
        assert lines("gc") == []
        go.touch()
        assert session.end() == 0
    (name,) = {app.name for app in service.apps if app.live}
    assert {f"{name}-in"} == service.named("queue")
    assert {f"{name}-claims"} == service.named("dict")
    assert lines("gc") == []
    forget_notes(service)
    (would,) = lines("gc", "--dry-run")
    assert would.startswith(f"modal:{name}, app deployed on ")
    assert would.endswith("not used for 4 weeks, with queue and dict, would be taken away")
    assert [line for line in lines("ps") if "left over: remotegpu gc" in line]
    assert [app.name for app in service.apps if app.live] == [name]
    (was,) = lines("gc")
    assert was.startswith(f"modal:{name} was taken away (app deployed on ")
    assert [app for app in service.apps if app.live] == []
    assert service.named("queue") | service.named("dict") == set()
    assert lines("gc") == []


def test_what_a_session_left_that_deployed_nothing(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(TEST)
    run(pytester, T4, "--remote-ephemeral").assert_outcomes(passed=1)
    assert [app for app in service.apps if app.live] == []
    service.age(29 * DAY)
    assert lines("gc") == []  # the container's note is of today
    forget_notes(service)
    queue, named = lines("gc")
    assert "-in was taken away (queue of " in queue
    assert "-claims was taken away (dict of " in named
    assert service.named("queue") | service.named("dict") == set()
