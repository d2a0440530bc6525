"""``python -m pytest_remotegpu.backends.modal.looking``: what stands between here and a container.

Asks Modal in the order in which a session would, and nothing that costs money. Each line on stdout
is one finding; the first failure is the last line.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import inspect
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pytest_remotegpu.backends.base import Finding
from pytest_remotegpu.backends.modal import deploying, rates, sdk, signing, table, trouble
from pytest_remotegpu.backends.modal.trouble import Trouble
from pytest_remotegpu.errors import RemoteGpuError
from pytest_remotegpu.recipe import decode

__all__ = ["main"]

SLOW: Final = 2.0
"""Seconds for one answer from which on a network is slow."""
SKEW: Final = 30.0
"""Seconds by which this host's clock may differ from the service's."""


class FoundError(Exception):
    """Ends the look; ``finding`` says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.text)
        self.finding = finding


def _fail(name: str, found: Trouble) -> FoundError:
    return FoundError(Finding(name, "FAIL", found.what, found.fix or trouble.LOOK))


def _load() -> tuple[Any, Finding]:
    """Import the SDK and keep it from opening pickles.

    :raises FoundError: where it can't be had, or can't be kept from that.
    """
    name = "modal SDK"
    try:
        modal = sdk.load()
        sdk.harden()
    except RemoteGpuError as error:
        what, _, fix = error.what.partition(": ")
        raise _fail(name, Trouble("usage", what, error.fix or fix)) from None
    except Exception as error:  # noqa: BLE001 -- the border: it reads a file of the user's
        raise _fail(name, signing.unusable(error)) from None
    text = f"{importlib.metadata.version('modal')}, {Path(inspect.getfile(modal)).parent}"
    for there in (Path("modal"), Path("modal.py")):
        if there.exists():
            text += f"; {there.resolve()} is not taken for it"
    return modal, Finding(name, "ok", text)


class Look:
    """One look at the service.

    :param order: what a session would have a courier do.
    """

    def __init__(self, modal: Any, order: Mapping[str, Any]) -> None:
        self._modal = modal
        self._order = order
        self._longest = 0.0

    def findings(self) -> Iterator[Finding]:
        """Yield what is found.

        :raises FoundError: where nothing more can be asked.
        """
        yield self._service()
        yield self._account()
        yield self._environment()
        yield from self._clock()
        yield self._prices()
        yield self._python()
        function = self._asked("modal app", "looking for the app", self._deployed)
        yield self._app(function)
        if function is not None and self._order["gpu"]:
            yield self._card(function)

    def _asked(self, name: str, during: str, question: Any) -> Any:
        """Ask the service something.

        :raises FoundError: where it does not answer, or refuses.
        """
        began = time.monotonic()
        try:
            return question()
        except Exception as error:  # noqa: BLE001 -- the border: whatever the SDK raises
            raise _fail(name, trouble.of_error(self._modal, error, during=during)) from None
        finally:
            self._longest = time.monotonic() - began

    def _service(self) -> Finding:
        began = time.monotonic()
        found = signing.reach(self._modal)
        if found is not None:
            raise _fail("modal service", found)
        took = time.monotonic() - began
        url = self._modal.config.config.get("server_url")
        return Finding("modal service", "ok", f"{url} is reached within {took * 1000:.0f} ms")

    def _account(self) -> Finding:
        name = "modal account"
        began = time.monotonic()
        found = signing.sign_in(self._modal)
        if found is not None:
            raise _fail(name, found)
        took = time.monotonic() - began
        workspace = self._modal.Workspace.from_context()
        self._asked(name, "asking for the workspace", workspace.hydrate)
        text = f"the token is taken, workspace {workspace.name or 'without a name'}"
        slow = max(took, self._longest)
        if slow > SLOW:
            text += f"; one answer took {slow:.1f} s"
            return Finding(name, "warn", text, f"sessions will start slowly; {trouble.LOOK}")
        return Finding(name, "ok", text)

    def _environment(self) -> Finding:
        environment = self._modal.Environment.from_context()
        name = "modal environment"
        try:
            self._asked(name, "asking for the environment", environment.hydrate)
        except FoundError as error:
            wanted = self._modal.config.config.get("environment")
            how = (
                "`modal environment list` shows which there are; set MODAL_ENVIRONMENT to one, or "
                f"make it: modal environment create {wanted}"
            )
            raise FoundError(Finding(name, "FAIL", error.finding.text, how)) from None
        return Finding(name, "ok", str(environment.name))

    def _clock(self) -> Iterator[Finding]:
        """Compare clocks, where the service says when it has made something."""
        try:
            with self._modal.Queue.ephemeral() as queue:
                made = queue.info().created_at.timestamp()
        except Exception:  # noqa: BLE001 -- then it is not visible, and no matter
            return
        if not made > 0:
            return
        ahead = time.time() - made
        text = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} Modal's"
        if abs(ahead) > SKEW:
            fix = "set this host's clock, such as by: sudo timedatectl set-ntp true"
            yield Finding("modal clock", "warn", f"this host's clock is {text}", fix)
        else:
            yield Finding("modal clock", "ok", f"this host's clock agrees with Modal's ({text})")

    def _prices(self) -> Finding:
        """Ask what the workspace pays, and keep it for sessions."""
        name = "modal rates"
        workspace = self._modal.Workspace.from_context()
        try:
            told = {key: str(usd) for key, usd in workspace.billing.rates().items()}
        except Exception as error:  # noqa: BLE001 -- the border: whatever the SDK raises
            told, why = {}, trouble.of_error(self._modal, error, during="asking for rates").what
        else:
            why = "it names none for a card of the table"
        found = rates.read(told, workspace.name or "", dt.datetime.now(tz=dt.UTC).date())
        if not found.usd:
            text = f"the workspace's own are not known ({why}); prices are those of {table.DATE}"
            return Finding(name, "ok", text)
        rates.keep(os.environ, found)
        shown = ", ".join(f"{card} {usd:.2f}" for card, usd in found.usd.items())
        return Finding(name, "ok", f"{found.source}, in USD an hour: {shown}")

    def _python(self) -> Finding:
        recipe = decode(self._order["recipe"])
        base, here = recipe.base, f"{sys.version_info[0]}.{sys.version_info[1]}"
        own = (base.dockerfile or base.reference) and not base.adds_python
        if own:
            text = f"{own} brings its own, and tests need {here}: the worker will say which it is"
        elif recipe.python != here:
            fix = "run pytest and remotegpu with the same interpreter"
            text = f"the image gets Python {recipe.python}, and this one is {here}"
            return Finding("modal python", "FAIL", text, fix)
        else:
            text = f"the image gets Python {recipe.python}, as this one is"
        return Finding("modal python", "ok", text)

    def _deployed(self) -> Any:
        found = self._modal.Function.from_name(self._order["app"], deploying.FUNCTION)
        try:
            found.hydrate()
        except self._modal.exception.NotFoundError:
            return None
        return found

    def _app(self, function: Any) -> Finding:
        app = self._order["app"]
        if function is not None:
            return Finding("modal app", "ok", f"{app} is deployed; nothing has to be built")
        why = self._order["reason"] or "this environment was never deployed"
        what = "; ".join(self._order["describes"])
        text = f"{app} is not deployed ({why}); the first start builds {what}"
        return Finding("modal app", "ok", text)

    def _card(self, function: Any) -> Finding:
        """Have the service look at the card, as a session does; no container starts by that."""
        name, gpu = "modal card", self._order["gpu"]
        bound = deploying.chosen(function, self._order)
        self._asked(name, f"asking for {gpu}", bound.hydrate)
        return Finding(name, "ok", f"{gpu} may be had; whether one is free shows when it starts")


def main() -> int:
    """Look, and tell what is found.

    :return: the exit status.
    """
    outward = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    order = json.loads(sys.stdin.readline())

    def tell(finding: Finding) -> None:
        outward.write(json.dumps(asdict(finding)) + "\n")
        outward.flush()

    try:
        modal, finding = _load()
        tell(finding)
        for each in Look(modal, order).findings():
            tell(each)
    except FoundError as error:
        tell(error.finding)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
