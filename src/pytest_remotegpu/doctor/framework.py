"""Checks of torch: whether it can be imported, whether its build fits the driver and the cards.

Torch is imported in a process of its own, under a limit: one that crashes or hangs is a finding.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_remotegpu import cards
from pytest_remotegpu.cards import Card
from pytest_remotegpu.doctor.check import Check, fail, ok, warn

__all__ = ["Torch", "check_archs", "check_nccl", "check_torch", "examine", "look"]

LIMIT: Final = 120.0
"""Seconds for the import; on a slow disk it takes half a minute."""
MARK: Final = "REMOTEGPU-TORCH "
LOOK: Final = f"""\
import json, sys, warnings
def put(**found):
    print({MARK!r} + json.dumps(found), flush=True)
try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    put(version="")
    sys.exit()
found = dict(version=torch.__version__, cuda=torch.version.cuda, hip=torch.version.hip)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    found["available"] = torch.cuda.is_available()
    found["archs"] = torch.cuda.get_arch_list()
found["said"] = [str(warning.message) for warning in said]
put(**found)
found["nccl"] = ""
if torch.distributed.is_available() and torch.distributed.is_nccl_available():
    number = torch.cuda.nccl.version()
    found["nccl"] = ".".join(map(str, number)) if isinstance(number, tuple) else str(number)
put(**found)
"""
INSTALL: Final = f"{sys.executable} -m pip install --force-reinstall --no-cache-dir torch"


@dataclass(frozen=True)
class Torch:
    """What a torch says of itself.

    :ivar version: empty where it is not installed. :ivar cuda: the CUDA that it is built for.
    :ivar hip: the ROCm that it is built for. :ivar archs: the cards' architectures that it has code
        for, such as ``sm_90``. :ivar available: whether it can use a card of this host.
    :ivar said: its warnings. :ivar nccl: the version of its NCCL; empty where it has none.
    :ivar broken: how the look at it ended, where that was no good end.
    """

    version: str = ""
    cuda: str | None = None
    hip: str | None = None
    archs: tuple[str, ...] = ()
    available: bool = False
    said: tuple[str, ...] = ()
    nccl: str = ""
    broken: str = ""

    @property
    def name(self) -> str:
        """Its name and version, and what it is built for."""
        built = f"CUDA {self.cuda}" if self.cuda else f"ROCm {self.hip}" if self.hip else "the CPU"
        return f"{self.version}, built for {built}"


def look(python: str, environ: Mapping[str, str], limit: float = LIMIT) -> Torch:
    """Look at the torch of an interpreter, with all cards in sight.

    :param limit: seconds.
    """
    variables = {name: value for name, value in environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    try:
        done = subprocess.run(
            [python, "-P", "-c", LOOK],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=variables,
            timeout=limit,
            check=False,
            start_new_session=True,
        )
    except OSError as error:
        return Torch(broken=f"it can't be looked at: {error}")
    except subprocess.TimeoutExpired as error:
        said = _read(error.stdout or b"")
        return _torch(said, f"it did not answer within {limit:g} s")
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
    broken = f"the process that imported it ended with {how}: {''.join(words)}".rstrip(": ")
    return _torch(_read(done.stdout), broken if done.returncode else "")


def _read(output: bytes) -> dict[str, Any]:
    """Give the last that was said of it; it may have printed other things too."""
    found: dict[str, Any] = {}
    for line in output.decode("utf-8", "replace").splitlines():
        if line.startswith(MARK):
            found = json.loads(line.removeprefix(MARK))
    return found


def _torch(said: Mapping[str, Any], broken: str) -> Torch:
    known: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in said.items()
    }
    return Torch(**known, broken=broken)


def check_torch(torch: Torch, there: Sequence[Card], driver: tuple[int, int] | None) -> Check:
    """Check whether torch can use the cards.

    :param there: the host's cards. :param driver: the newest CUDA that the driver serves.
    """
    if torch.broken:
        text = f"{torch.version} {torch.broken}".strip()
        return fail("torch", text, f"try: {sys.executable} -c 'import torch'; else: {INSTALL}")
    if not torch.version:
        text = "not installed"
        if not there:
            return ok("torch", text)
        return warn("torch", f"{text}; the fixtures gpu and gpu_device need it", INSTALL)
    if not there:
        return ok("torch", torch.name)
    if torch.hip:
        return fail("torch", f"{torch.name}; only CUDA is supported", _line(driver))
    if not torch.cuda:
        return fail("torch", f"{torch.name}: no test can use a card with it", _line(driver))
    if not torch.available:
        return fail("torch", _why_not(torch, driver), _way(torch, driver))
    return ok("torch", torch.name)


def _why_not(torch: Torch, driver: tuple[int, int] | None) -> str:
    said = f": {torch.said[0]}" if torch.said else ""
    if _is_too_new(torch, driver):
        assert driver is not None
        return f"{torch.name}, and the driver serves CUDA up to {driver[0]}.{driver[1]} only{said}"
    return f"{torch.name} can't use a card{said}"


def _way(torch: Torch, driver: tuple[int, int] | None) -> str:
    if _is_too_new(torch, driver):
        return f"install a newer driver; or a torch for it: {_line(driver)}"
    return f"see what it says: {sys.executable} -c 'import torch; torch.zeros(1).cuda()'"


def _is_too_new(torch: Torch, driver: tuple[int, int] | None) -> bool:
    """Say whether torch needs a newer driver: minor versions of CUDA get on with each other."""
    major = re.match(r"\d+", torch.cuda or "")
    return major is not None and driver is not None and int(major[0]) > driver[0]


def _line(driver: tuple[int, int] | None) -> str:
    most = f" up to {driver[0]}.{driver[1]}" if driver else ""
    return f"{INSTALL} (pytorch.org names the index for each CUDA; this driver serves{most})"


def check_archs(torch: Torch, there: Sequence[Card]) -> Iterator[Check]:
    """Check whether torch has code for each kind of card."""
    for capability, name in sorted({(card.capability, card.name) for card in there}):
        if torch.archs and capability and not _runs_on(torch.archs, capability):
            yield fail(
                "torch",
                f"{torch.name} has no code for {name} (capability {capability}), only for "
                f"{', '.join(torch.archs)}",
                f"install a build with it: {INSTALL} (pytorch.org names older and newer ones)",
            )


def _runs_on(archs: Sequence[str], capability: float) -> bool:
    """Say whether code for one of these runs on a card.

    Machine code does on cards of the same major version that are not older, what is compiled when
    it is loaded (``compute_90``) on every one that is not older, and what has a letter behind its
    number on that very one.
    """
    wanted = tuple(int(part) for part in f"{capability:.1f}".split("."))
    for arch in archs:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", arch)
        if match is None:
            continue
        has = (int(match[2]), int(match[3]))
        exact = has == wanted
        same = has[0] == wanted[0] and has <= wanted
        if exact or (not match[4] and (same if match[1] == "sm" else has <= wanted)):
            return True
    return False


def check_nccl(torch: Torch, count: int) -> Check:
    """Check what tests on several cards of a host communicate by.

    :param count: of cards.
    """
    if torch.nccl:
        return ok("nccl", torch.nccl)
    if count < 2:  # noqa: PLR2004 -- one card has nobody to talk to
        return ok("nccl", "torch has none; with one card it is not needed")
    return warn(
        "nccl", "torch has none, so tests on several cards can't communicate by it", INSTALL
    )


def examine(environ: Mapping[str, str], limit: float = LIMIT) -> Iterator[Check]:
    """Make all checks of this module."""
    there = cards.visible({})
    torch = look(sys.executable, environ, limit)
    yield check_torch(torch, there, cards.cuda())
    if there and torch.cuda and not torch.broken:
        yield from check_archs(torch, there)
        yield check_nccl(torch, len(there))
