"""A Modal service on this machine, for tests with the real client and the real container entrypoint.

What it proves is the protocol: calls, streams, faults. Scheduling, registries, prices and cold starts of
the real service it can't show.
"""

from tests.loopback.faults import Faults
from tests.loopback.scheduling import Limits
from tests.loopback.service import LoopbackModal

__all__ = ["Faults", "Limits", "LoopbackModal"]
