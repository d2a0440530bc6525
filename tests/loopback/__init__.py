"""A Modal service on this machine, for the real client and the real container entrypoint.

What it proves is the protocol: calls, streams, faults. Scheduling, registries, prices and cold
starts of the real service it can't show.
"""

from .faults import Faults
from .scheduling import Limits
from .service import LoopbackModal

__all__ = ["Faults", "Limits", "LoopbackModal"]
