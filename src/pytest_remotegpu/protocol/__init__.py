"""The wire: plain data, hello, orders outward, events back.

All meaning of the bytes is here; how they travel, and what pytest makes of them, is not.
"""

from __future__ import annotations

from pytest_remotegpu.protocol import events, frames, hello, orders, packing, plain

__all__ = ["events", "frames", "hello", "orders", "packing", "plain"]
