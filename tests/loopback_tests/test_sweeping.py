"""What is left over at Modal: what nobody has used for weeks, and is certainly ours."""

from __future__ import annotations

import re
import time

import modal
import pytest
from grpclib import Status

from pytest_remotegpu.backends.modal import listing
from pytest_remotegpu.backends.modal.container import note_of
from pytest_remotegpu.backends.modal.deploying import TAG
from pytest_remotegpu.errors import FarSideError

from . import far_code
from .standing import Stand

DAY = 86400.0
OURS, FOREIGN = "rgpu-0123456789ab", "rgpu-ba9876543210"


def deploy(stand: Stand, name: str, tags: dict[str, str]) -> None:
    """Deploy an app with a queue and a dict, which were made by its first call."""
    app = modal.App(name, tags=tags)
    image = modal.Image.debian_slim().add_local_python_source("loopback_tests")
    app.function(name="run", image=image, include_source=False)(far_code.spoken)
    app.deploy(client=stand.client)
    make(stand, name)


def make(stand: Stand, *names: str) -> None:
    for name in names:
        modal.Queue.objects.create(f"{name}-in", client=stand.client)
        modal.Dict.objects.create(f"{name}-claims", client=stand.client)


def left(stand: Stand) -> set[str]:
    """Name what is there: apps, queues, dicts."""
    apps = {app.name for app in stand.service.apps if app.live}
    return apps | stand.service.named("queue") | stand.service.named("dict")


def all_of(name: str) -> set[str]:
    return {name, f"{name}-in", f"{name}-claims"}


def test_an_app_that_nobody_uses(stand: Stand) -> None:
    """It goes with its queue and dict; what is not ours, or not named as ours, stays."""
    deploy(stand, OURS, {TAG: "x"})
    deploy(stand, FOREIGN, {})
    make(stand, "rgpu-notes", "other", f"x{OURS}", "rgpu-0123456789AB")
    before = left(stand)
    assert listing.Apps().orphans() == []
    stand.service.age(27.5 * DAY)
    assert listing.Apps().orphans() == []
    stand.service.age(DAY)
    apps = listing.Apps()
    (found,) = apps.orphans()
    assert (found.id, found.busy) == (OURS, False)
    day = r"\d{4}-\d\d-\d\d"
    words = rf"app deployed on {day} and not used for 4 weeks, with queue and dict"
    assert re.fullmatch(words, found.about), found.about
    assert [each.id for each in apps.list()] == [OURS]
    assert left(stand) == before
    for name in (FOREIGN, f"{FOREIGN}-in", "rgpu-notes-in", "other", f"{OURS}-in"):
        with pytest.raises(FarSideError, match="is not left over"):
            apps.collect(name)
    apps.collect(OURS)
    assert left(stand) == before - all_of(OURS)
    assert apps.orphans() == []
    with pytest.raises(FarSideError, match="is not left over: it is gone, or somebody"):
        apps.collect(OURS)


def test_any_sign_of_use_keeps_an_app(stand: Stand) -> None:
    deploy(stand, OURS, {TAG: "x"})
    stand.service.age(29 * DAY)
    (found,) = listing.Apps().orphans()
    # a container has noted it
    notes = modal.Dict.from_name(f"{OURS}-claims", client=stand.client)
    notes.put(note_of(time.time() - 27 * DAY), 1)
    assert listing.Apps().orphans() == []
    with pytest.raises(FarSideError, match="somebody has used it"):
        listing.Apps().collect(found.id)
    notes.clear()
    notes.put(note_of(time.time() - 36 * DAY), 1)
    assert listing.Apps().orphans() == [found]
    # the service has counted a call, whatever its options, in the earliest of four weeks
    function = modal.Function.from_name(OURS, "run", client=stand.client)
    function.with_options(timeout=77).remote("a-word")
    stand.service.age(27 * DAY)
    assert listing.Apps().orphans() == []
    stand.service.age(2 * DAY)
    assert len(listing.Apps().orphans()) == 1
    # it does not tell
    stand.service.faults.refuse("FunctionGetTimeRangeStats", Status.UNIMPLEMENTED, times=2)
    assert listing.Apps().orphans() == []
    # it was deployed anew
    stand.service.apps[0].created_at = time.time()
    assert listing.Apps().orphans() == []
    assert all_of(OURS) <= left(stand)


def test_queues_and_dicts_without_an_app(stand: Stand) -> None:
    """The app was stopped, or was there for one session only."""
    make(stand, OURS, FOREIGN, f"{FOREIGN}-h100-l4")
    stand.service.age(29 * DAY)
    make(stand, "rgpu-000000000000")
    notes = modal.Dict.from_name(f"{FOREIGN}-claims", client=stand.client)
    notes.put(note_of(time.time()), 1)
    apps = listing.Apps()
    found = {each.id: each.about for each in apps.orphans()}
    gone = {OURS, f"{FOREIGN}-h100-l4"}
    assert set(found) == {f"{name}{end}" for name in gone for end in ("-in", "-claims")}
    assert found[f"{OURS}-in"].startswith("queue of ")
    assert found[f"{OURS}-claims"].endswith(", whose app is gone")
    before = left(stand)
    apps.collect(f"{OURS}-in")
    assert left(stand) == before - {f"{OURS}-in"}
    apps.collect(f"{OURS}-claims")
    assert left(stand) == before - {f"{OURS}-in", f"{OURS}-claims"}


def test_an_app_that_lives_for_one_session_keeps_its_queue(stand: Stand) -> None:
    make(stand, OURS)
    stand.service.age(29 * DAY)
    with modal.App(OURS, tags={TAG: "x"}).run(client=stand.client):
        assert listing.Apps().orphans() == []
    assert len(listing.Apps().orphans()) == 2
