"""Reads the properties of tests from junit files. Knows the names that every shipped test has."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

__all__ = ["properties"]

ALWAYS = {"remotegpu_backend", "remotegpu_gpu", "remotegpu_worker"}


def properties(junit: Path) -> dict[str, dict[str, str]]:
    """Give each test's properties, less those that every shipped test has, and their prefix."""
    found: dict[str, dict[str, str]] = {}
    for case in ET.parse(junit).iter("testcase"):  # noqa: S314  we have written it
        pairs = [(one.get("name", ""), one.get("value", "")) for one in case.iter("property")]
        found[case.get("name", "")] = {
            name.removeprefix("remotegpu_"): value for name, value in pairs if name not in ALWAYS
        }
    return found
