"""What a workspace of Modal's pays for each type of card, by its own rates; kept for later runs.

Reads what the service says as data, and a file of this user's. Asks nobody; must not know the SDK.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.backends.modal import table

__all__ = ["Rates", "due", "keep", "known", "read"]

PREFIX: Final = "gpu_hour_cost_"
"""Begins the service's names of rates for one card and an hour, in USD."""
NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "A10": ("a10", "a10g"),
    "RTX-PRO-6000": ("rtx_pro_6000", "rtx6000"),
    "H100!": ("h100",),
    "B200+": ("b200",),
}
"""What follows there for types that it calls otherwise than ``with_options`` does."""
UNIT: Final = 20.0
"""Times by which a rate may differ from the table's price, and be in the same unit still."""
FRESH: Final = 1
"""Days for which rates are not asked for again."""
OLD: Final = 30
"""Days after which they are used no more."""


@dataclass(frozen=True)
class Rates:
    """The rates of one workspace.

    :ivar workspace: its name; may be empty. :ivar date: the day on which it was asked for them.
    :ivar usd: for one card and an hour, by the names of the table.
    """

    workspace: str
    date: str
    usd: Mapping[str, float] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """Say whose they are."""
        return f"rates of Modal workspace {self.workspace}" if self.workspace else "Modal's rates"


def read(told: Mapping[str, Any], workspace: str, day: dt.date) -> Rates:
    """Take what the service says; a rate that can't be one is left out.

    :param told: numbers as texts, by the service's names.
    """
    found = {}
    for row in table.TYPES.values():
        names = NAMES.get(row.name, (row.name.lower().replace("-", "_"),))
        usd = next((told[PREFIX + name] for name in names if PREFIX + name in told), None)
        if (amount := _amount(usd, row.name)) is not None:
            found[row.name] = amount
    return Rates(workspace, day.isoformat(), found)


def _amount(usd: Any, name: str) -> float | None:
    listed = table.usd_per_hour(name)
    try:
        amount = float(usd)
    except (TypeError, ValueError):
        return None
    if listed is None or not math.isfinite(amount) or not listed / UNIT < amount < listed * UNIT:
        return None
    return amount


# ---------------------------------------------------------------- kept from run to run


def _place(environ: Mapping[str, str]) -> Path:
    """Name the file for the workspace that the SDK's settings lead to; nothing is told by it."""
    config = Path(environ.get("MODAL_CONFIG_PATH") or "~/.modal.toml").expanduser()
    names = ("MODAL_SERVER_URL", "MODAL_PROFILE", "MODAL_TOKEN_ID", "MODAL_OAUTH_CLIENT_ID")
    said = [environ.get(name, "") for name in names]
    with contextlib.suppress(OSError):
        said.append(f"{config} {config.stat().st_mtime_ns}")  # it says which profile is active
    name = hashlib.sha256("\0".join(said).encode()).hexdigest()[:16]
    base = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "pytest-remotegpu", f"modal-rates-{name}.json")


def known(environ: Mapping[str, str], today: dt.date) -> Rates | None:
    """Give the rates that were kept, if they are not too old."""
    try:
        data = json.loads(_place(environ).read_text(encoding="utf-8"))
        found = Rates(str(data["workspace"]), str(data["date"]), dict(data["usd"]))
        days = (today - dt.date.fromisoformat(found.date)).days
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        return None
    sound = all(_amount(usd, name) == usd for name, usd in found.usd.items())
    return found if sound and found.usd and 0 <= days <= OLD else None


def due(rates: Rates | None, today: dt.date) -> bool:
    """Say whether it is time to ask for them."""
    return rates is None or (today - dt.date.fromisoformat(rates.date)).days >= FRESH


def keep(environ: Mapping[str, str], rates: Rates) -> None:
    """Keep rates for later runs; where that can't be, they are asked for again."""
    if not rates.usd:
        return
    with contextlib.suppress(OSError, RuntimeError):
        place = _place(environ)
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, path = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(rates), file)
        Path(path).replace(place)
