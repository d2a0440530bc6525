"""Checks of the cards: the driver, each card and who is on it, and which of them a process sees.

Asks :mod:`pytest_remotegpu.cards` and :mod:`pytest_remotegpu.locks`; knows no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_remotegpu import cards, locks
from pytest_remotegpu.cards import Card, User
from pytest_remotegpu.doctor.check import Check, fail, ok, warn

__all__ = ["Use", "check_driver", "check_use", "check_visible", "examine", "use_of"]

GIB: Final = 2**30
NVIDIA: Final = "0x10de"
VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
PRETEND: Final = "PYTEST_REMOTEGPU_PRETEND_GPUS"
ELSEWHERE: Final = (
    "nothing, if there is no card here: run the tests on another host, --remote=ssh:HOST, or "
    "without a card, --remote=local:cpu"
)
TROUBLE: Final = {
    "mismatch": (
        "the driver was updated while its old module was loaded: reboot, or unload the nvidia "
        "modules with nobody using them and load them anew"
    ),
    "not loaded": "load the driver (modprobe nvidia), or install the one for this kernel",
    "not found": (
        "install the driver; in a container: start it with --gpus all (or the CDI device "
        "nvidia.com/gpu=all) and NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    ),
    "permission": "let this user read and write /dev/nvidia*",
    "": "restart the container; on the host itself, reset the card or reboot",
}
"""What the library may complain of, in lower case, and the way out; at last, of anything else."""


# the driver


def check_driver(
    trouble: str, driver: str, cuda: tuple[int, int] | None, *, has_hardware: bool
) -> Check:
    """Check the driver and its library.

    :param trouble: why the library can't be used; empty where it can.
    :param cuda: the newest CUDA that the driver serves.
    :param has_hardware: whether the system shows a card of NVIDIA's, driver or not.
    """
    if not trouble:
        serves = f", serves CUDA up to {cuda[0]}.{cuda[1]}" if cuda else ""
        return ok("driver", f"{driver or 'of an unknown version'}{serves}")
    if "can't be imported" in trouble:
        return fail("driver", trouble, "install nvidia-ml-py, which this package needs")
    if not has_hardware:
        return warn("driver", trouble, ELSEWHERE)
    way = next(way for word, way in TROUBLE.items() if word in trouble.lower())
    return fail("driver", f"there is a card, but {trouble}", way)


def shows_hardware(root: Path = Path("/")) -> bool:
    """Say whether the system shows a card of NVIDIA's, whatever becomes of the driver.

    :param root: of the file system.
    """
    if any(root.glob("dev/nvidia[0-9]*")) or (root / "proc/driver/nvidia/version").exists():
        return True
    for device in root.glob("sys/bus/pci/devices/*"):
        try:
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == NVIDIA and kind.startswith("0x03"):  # a display or 3D controller
            return True
    return False


# each card


@dataclass(frozen=True)
class Use:
    """Who is on a card.

    :ivar used: bytes in use. :ivar lock: its lease.
    :ivar tenants: the processes that compute on it under the lease. :ivar strangers: the others.
    """

    card: Card
    used: int
    lock: locks.Lock
    tenants: tuple[User, ...] = ()
    strangers: tuple[User, ...] = ()

    @property
    def head(self) -> str:
        """The card in words, with its memory."""
        number = f"card {self.card.token}, " if self.card.token.isdecimal() else ""
        memory = f"{self.used / GIB:.1f} of {self.card.memory / GIB:.1f} GiB in use"
        return f"{number}{self.card.in_words()}, {memory}"

    def people(self) -> list[str]:
        """Say who has it, who waits for it and who else is there, a line each."""
        lines = [f"leased by {locks.about(pid)}" for pid in self.lock.by]
        if self.lock.held and not lines:
            lines.append("leased by a process that can't be seen from here")
        lines += [f"wanted by {locks.about(pid)}" for pid in self.lock.wanted_by]
        lines += [
            f"used without a lease by {locks.about(user.pid)}, {user.memory / GIB:.1f} GiB"
            for user in self.strangers
        ]
        return lines


def use_of(card: Card, folder: Path = locks.FOLDER) -> Use:
    """Look at one card.

    :param folder: of the leases.
    """
    lock = locks.look(card.uuid, folder)
    users = cards.users(card.uuid)
    under = [user for user in users if lock.held and locks.descends(user.pid, card.uuid, folder)]
    strangers = [user for user in users if user not in under]
    return Use(card, cards.in_use(card.uuid), lock, tuple(under), tuple(strangers))


def check_use(use: Use) -> Check:
    """Check one card."""
    capability = use.card.capability
    text = "; ".join([f"{use.head}, capability {capability or 'unknown'}", *use.people()])
    if use.strangers:
        return warn(
            "card", text, "a lease can't keep such a process away: end it, or hide the card with"
            f" {VARIABLE}",
        )  # fmt: skip
    return ok("card", text)


# what a process sees


def check_visible(environ: Mapping[str, str], shown: Sequence[Card], there: int) -> Check:
    """Check what the variable makes of the cards.

    :param shown: the cards that a process with these variables sees.
    :param there: how many the host has.
    """
    value = environ.get(VARIABLE)
    if value is None:
        return _check_order(environ, shown, "unset: all cards are seen")
    text = f"{VARIABLE}={value!r} shows {_names(shown)}"
    entries = [entry.strip() for entry in value.split(",")]
    if not there:
        return ok("visible", text)
    if value.strip() in ("", "-1", "NoDevFiles"):
        return warn("visible", f"{text}: every card is hidden", f"unset {VARIABLE}")
    if not shown and len(set(entries)) < len(entries):
        return fail("visible", f"{text}, since it names a card twice", "name each card once")
    if len(shown) < len(entries):
        wrong = entries[len(shown)]
        why = f"{text}, since {wrong!r} names none, and what follows does not count"
        fix = f"name indices below {there}, or UUIDs as nvidia-smi -L lists them"
        return warn("visible", why, fix) if shown else fail("visible", why, fix)
    return _check_order(environ, shown, text)


def _names(shown: Sequence[Card]) -> str:
    return ", ".join(card.in_words() for card in shown) or "no card"


def _check_order(environ: Mapping[str, str], shown: Sequence[Card], text: str) -> Check:
    if cards.certain(environ, shown):
        return ok("visible", text)
    return warn(
        "visible",
        f"{text}; the cards differ, and CUDA may count the fastest first",
        "set CUDA_DEVICE_ORDER=PCI_BUS_ID where tests run without --remote",
    )


def examine(environ: Mapping[str, str]) -> Iterator[Check]:
    """Make all checks of this module."""
    trouble = cards.trouble()
    yield check_driver(trouble, cards.driver(), cards.cuda(), has_hardware=shows_hardware())
    if environ.get(PRETEND):
        yield warn(
            "card",
            f"{PRETEND}={environ[PRETEND]} is set: workers of this host pretend that many",
            "unset it to use real cards",
        )
    there = cards.visible({})
    if not trouble and not there:
        yield warn("card", "the driver shows none", ELSEWHERE)
    for text in cards.unusable():
        yield fail("card", text, "look for Xid in the kernel's log and reset the card; make slices"
                   " with nvidia-smi mig, or switch MIG mode off")  # fmt: skip
    for card in there:
        yield check_use(use_of(card))
    if VARIABLE in environ or there:
        yield check_visible(environ, cards.visible(environ), len(there))
