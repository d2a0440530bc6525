"""The limits of a session's process, for processes that stand in for it.

Knows the system's limits; who asks for them, and what runs under them, it does not know.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from typing import Any

__all__ = ["Bounds"]


@dataclass(frozen=True)
class Bounds:
    """The limits of a session's process, for the processes that stand in for it.

    :ivar limits: by their number, soft and hard. :ivar cpus: that it may run on.
    """

    limits: dict[int, tuple[int, int]]
    cpus: frozenset[int]

    @classmethod
    def read(cls, request: dict[str, Any]) -> Bounds:
        """Read them from a request.

        :raises ValueError: for one that this process could not grant.
        """
        limits = {
            int(getattr(resource, str(name))): (int(soft), int(hard))
            for name, (soft, hard) in request["limits"].items()
        }
        for number, (_soft, hard) in limits.items():
            own = resource.getrlimit(number)[1]
            above = own != resource.RLIM_INFINITY and (hard == resource.RLIM_INFINITY or hard > own)
            if above:
                raise ValueError(f"the session has a higher limit than the agent ({hard} > {own})")
        return cls(limits, frozenset(int(cpu) for cpu in request["cpus"]))

    def apply(self, pid: int) -> None:
        """Give them to a process, whose children inherit them."""
        for number, both in self.limits.items():
            if resource.prlimit(pid, number) != both:
                resource.prlimit(pid, number, both)
        if self.cpus and self.cpus != os.sched_getaffinity(pid):
            os.sched_setaffinity(pid, self.cpus)
