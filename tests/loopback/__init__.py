"""A Modal service on this machine, for the real client and the real container entrypoint.

What it proves is the protocol: calls, streams, faults. Scheduling, registries, prices and cold
starts of the real service it can't show.
"""

try:
    from .faults import Faults
    from .scheduling import Limits
    from .service import LoopbackModal
except ModuleNotFoundError as error:
    way = "it needs Modal's client: python -m pip install -e '.[modal]', in the clone"
    raise ModuleNotFoundError(
        f"the service can't start ({error}); {way}", name=error.name
    ) from None

__all__ = ["Faults", "Limits", "LoopbackModal"]
