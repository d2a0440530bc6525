"""Leases of cards: exclusive, all or nothing, held by whoever lives, and given back when asked."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("fcntl")

from pytest_remotegpu.cards import Card
from pytest_remotegpu.errors import FarSideError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import events, orders
from pytest_remotegpu.worker.hold import Hold
from pytest_remotegpu.worker.leases import AFTER_YOU, Lease, NotToBeHadError

CARDS = [
    Card(token=str(n), uuid=f"GPU-{n}", name="NVIDIA H200", memory=140 * 2**30, capability=9.0)
    for n in range(3)
]
MIG = Card("MIG-GPU-5/1/0", "MIG-GPU-5/1/0", "NVIDIA A100 MIG 1g.5gb", 5 * 2**30, 8.0)


def uuids(lease: Lease) -> list[str]:
    return [card.uuid for card in lease.held]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Lease]:
    folder = tmp_path / "leases"
    return lambda count=1, cards=CARDS[:2]: Lease(cards, Shape(count), folder)


def test_a_card_has_one_holder(make: Callable[..., Lease]) -> None:
    first, second, third = make(), make(), make()
    assert first.take()
    assert second.take()
    assert {*uuids(first), *uuids(second)} == {"GPU-0", "GPU-1"}
    assert not third.take()
    assert third.held == []
    second.close()
    assert third.take()


def test_all_or_nothing(make: Callable[..., Lease]) -> None:
    one, both, other = make(), make(2), make()
    assert one.take()
    assert not both.take()
    assert both.locks == []
    one.give_back()
    assert both.take()
    assert uuids(both) == ["GPU-0", "GPU-1"]
    assert not other.take()


def test_one_who_waits_for_several_is_not_passed_by(make: Callable[..., Lease]) -> None:
    one, both, late = make(), make(2), make()
    assert one.take()
    assert not both.take()  # from here on it is the next
    assert not late.take()  # although a card is free
    one.close()
    assert not late.take()
    assert both.take()
    both.close()
    assert late.take()


def test_two_who_wait_for_several(make: Callable[..., Lease]) -> None:
    one, first, second = make(), make(2), make(2)
    assert one.take()
    assert not first.take()
    assert not second.take()
    one.close()
    assert not second.take()
    assert first.take()
    first.close()
    assert second.take()


def test_a_holder_sees_that_others_wait(make: Callable[..., Lease]) -> None:
    holder, waiting = make(1, CARDS[:1]), make(1, CARDS[:1])
    assert holder.take()
    assert not holder.wanted()
    assert not waiting.take()
    assert holder.wanted()
    waiting.close()
    assert not holder.wanted()


def test_who_gives_back_lets_others_go_first(make: Callable[..., Lease]) -> None:
    holder, waiting = make(1, CARDS[:1]), make(1, CARDS[:1])
    assert holder.take()
    assert not waiting.take()
    holder.give_back()
    assert not holder.take()
    assert waiting.take()


def test_who_gives_back_and_is_alone_may_have_it_again(make: Callable[..., Lease]) -> None:
    holder = make(1, CARDS[:1])
    assert holder.take()
    holder.give_back()
    assert holder.take()


def test_courtesy_ends(make: Callable[..., Lease]) -> None:
    holder, dead = make(1, CARDS[:1]), make(1, CARDS[:1])
    assert holder.take()
    assert not dead.take()  # and never asks again
    holder.give_back()
    end = time.monotonic() + AFTER_YOU + 5
    while not holder.take():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_process_that_lives_holds_it(make: Callable[..., Lease]) -> None:
    lease, other = make(1, CARDS[:1]), make(1, CARDS[:1])
    assert lease.take()
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=lease.locks
    )
    lease.close()
    assert not other.take()
    child.kill()
    child.communicate()
    assert other.take()


def test_kinds_of_cards(make: Callable[..., Lease], tmp_path: Path) -> None:
    small = Card("7", "GPU-7", "NVIDIA L4", 23 * 2**30, 8.9)
    lease = Lease([small, *CARDS], Shape(1, ("L4",)), tmp_path / "leases")
    assert lease.take()
    assert uuids(lease) == ["GPU-7"]
    with pytest.raises(NotToBeHadError, match=r"2 GPUs \(L4\) asked for, and this host shows 4"):
        Lease([small, *CARDS], Shape(2, ("L4",)), tmp_path / "leases")
    with pytest.raises(NotToBeHadError, match=r"3 GPUs asked for, and this host shows 2: NVIDIA H"):
        make(3)
    with pytest.raises(NotToBeHadError, match="shows 0: none"):
        make(1, [])


def test_slices_have_names_fit_for_files(make: Callable[..., Lease]) -> None:
    first, second = make(1, [MIG]), make(1, [MIG])
    assert first.take()
    assert not second.take()


def test_the_holder_is_named(make: Callable[..., Lease]) -> None:
    holder, waiting = make(1, CARDS[:1]), make(1, CARDS[:1])
    assert holder.take()
    assert f"NVIDIA H200 (GPU-0) is held by process {os.getpid()} of " in waiting.holders()


def test_the_folder_is_for_all_and_nobody_can_clear_it(
    make: Callable[..., Lease], tmp_path: Path
) -> None:
    assert make().take()
    mode = (tmp_path / "leases").stat().st_mode
    assert stat.S_IMODE(mode) == 0o1777
    assert stat.S_IMODE((tmp_path / "leases" / "GPU-0").stat().st_mode) == 0o644
    (tmp_path / "leases").chmod(0o777)
    with pytest.raises(FarSideError, match=r"no folder with the sticky bit.*chmod 1777"):
        make()


def test_what_lies_in_the_way(make: Callable[..., Lease], tmp_path: Path) -> None:
    lease = make(1, CARDS[:1])
    (tmp_path / "leases" / "GPU-0").symlink_to("/dev/null")
    with pytest.raises(FarSideError, match="can't be opened"):
        lease.take()
    (tmp_path / "leases" / "GPU-0").unlink()
    (tmp_path / "leases" / "GPU-0").mkdir()
    with pytest.raises(FarSideError, match="is no plain file; remove it"):
        lease.take()
    (tmp_path / "other").write_text("")
    with pytest.raises(FarSideError):
        Lease(CARDS, Shape(1), tmp_path / "other")


# what a supervisor makes of it


def order(gpus: int, wait: float = 0.0) -> orders.Order:
    return orders.Order(
        worker="local-1", nonce="n", gpus=gpus, cwd="/", root="/", tree=None, variables={},
        environ=None, options=orders.Options(args=[], argv=[], files=[]), max_artifact=1,
        payload=b"", run=orders.Run(0, 1), limits=orders.Limits(wait=wait),
    )  # fmt: skip


def test_hold_tells_of_the_wait_once_and_of_its_end(tmp_path: Path) -> None:
    said: list[events.Event] = []
    folder = tmp_path / "leases"
    first = Hold(order(1), CARDS[:1], None, said.append, folder)
    assert first.ready()
    assert [type(event) for event in said] == [events.Leased]
    said.clear()
    second = Hold(order(1), CARDS[:1], None, said.append, folder)
    assert not second.ready()
    assert not second.ready()
    assert [type(event) for event in said] == [events.Waiting]
    assert b"NVIDIA H200 (GPU-0) is held by process" in said[0].text  # type: ignore[union-attr]
    assert first.in_the_way(idle=True)
    assert not first.in_the_way(idle=False)  # it has only begun
    first.give_back()
    assert second.ready()
    assert [type(event) for event in said[1:]] == [events.Waiting, events.Leased]
    assert (first.visible(), second.visible()) == ("", "0")


def test_hold_waits_no_longer_than_it_may(tmp_path: Path) -> None:
    folder = tmp_path / "leases"
    first = Hold(order(2), CARDS[:2], None, lambda _: None, folder)
    assert first.ready()
    second = Hold(order(1, wait=0.05), CARDS[:2], None, lambda _: None, folder)
    assert not second.ready()
    time.sleep(0.06)
    with pytest.raises(FarSideError, match=r"not to be had within 0\.05 s \(--remote-wait\): NVID"):
        second.ready()


def test_pretend_cards_are_not_leased(tmp_path: Path) -> None:
    holds = [Hold(order(2), [], 2, lambda _: None, tmp_path) for _ in range(2)]
    assert all(hold.ready() for hold in holds)
    assert [hold.visible() for hold in holds] == ["", ""]
    with pytest.raises(FarSideError, match="3 GPUs asked for, and this host pretends 2"):
        Hold(order(3), [], 2, lambda _: None, tmp_path)


def test_caches_of_compilers_are_apart_and_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make = [Hold(order(1), CARDS, None, lambda _: None, tmp_path / "leases") for _ in range(3)]
    first, second = make[0].caches(), make[1].caches()
    assert first != second
    assert all(Path(folder).is_dir() for folder in (first, second))
    assert make[0].caches() == first
    make[0].close()
    assert make[2].caches() == first
