"""The ways to run the corpus that must give a plain run's results.

A further backend is one more entry; nothing else of the suite knows which there are.
"""

from __future__ import annotations

from .running import Leg

LOCAL = Leg("local:cpu", ("--remote=local:cpu",))

LEGS: tuple[Leg, ...] = (
    LOCAL,
    Leg("local:cpu all", ("--remote=local:cpu", "--remote-all"), ships_all=True),
)
