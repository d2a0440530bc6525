"""Reads a junit file into plain data that can be compared without the order of cases.

It must not know who wrote the file.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

from .normal import Normaliser, Place, left_out


@dataclass(frozen=True)
class Junit:
    """One junit file.

    Attributes:
        suite: the attributes of the suite and of the element around it, and the suite's properties.
        cases: each case as text, with all that it holds, counted.
        order: `classname::name` of each case, as they stand in the file.
        ours: the names of the cases that carry one of our own properties.
        properties: all properties of our own, for the tests of them.
    """

    suite: dict[str, str] = field(default_factory=dict)
    cases: Counter[str] = field(default_factory=Counter)
    order: tuple[str, ...] = ()
    ours: frozenset[str] = frozenset()
    properties: tuple[tuple[str, str], ...] = ()


def attributes(element: ET.Element, normal: Normaliser) -> dict[str, str]:
    """Give an element's attributes without those that may differ."""
    kept = {k: v for k, v in element.items() if not left_out(Place.JUNIT_ATTRIBUTE, k)}
    return {name: normal.text(value) for name, value in sorted(kept.items())}


def is_ours(element: ET.Element) -> bool:
    """Tell whether the element is a property of our own."""
    name = element.get("name", "")
    return element.tag == "property" and left_out(Place.JUNIT_PROPERTY, name)


def render(element: ET.Element, normal: Normaliser) -> list[str]:
    """Write an element as indented lines, without what may differ."""
    children = [line for child in element if not is_ours(child) for line in render(child, normal)]
    if element.tag == "properties" and not children:
        return []
    text = normal.text((element.text or "").strip())
    lines = [f"<{element.tag} {attributes(element, normal)}> {text}"]
    return lines + [f"  {line}" for line in children]


def own_properties(case: ET.Element) -> list[tuple[str, str]]:
    """List the properties of our own below an element."""
    found = [element for element in case.iter("property") if is_ours(element)]
    return [(element.get("name", ""), element.get("value", "")) for element in found]


def full_name(case: ET.Element) -> str:
    """Give the name of a case with its class."""
    return f"{case.get('classname')}::{case.get('name')}"


def parse(path: Path, normal: Normaliser) -> Junit:
    """Read one junit file; a file that is no XML raises `ParseError`."""
    suites = ET.parse(path).getroot()  # noqa: S314 -- written by the pytest that was started here
    suite = next(suites.iter("testsuite"))
    cases = list(suite.iter("testcase"))
    return Junit(
        suite={
            f"{element.tag} {name}": value
            for element in (suites, suite)
            for name, value in attributes(element, normal).items()
        }
        | {
            f"property {one.get('name')}": normal.text(one.get("value", ""))
            for one in suite.iterfind("properties/property")
            if not is_ours(one)
        },
        cases=Counter("\n".join(render(case, normal)) for case in cases),
        order=tuple(map(full_name, cases)),
        ours=frozenset(full_name(case) for case in cases if own_properties(case)),
        properties=tuple(pair for case in cases for pair in own_properties(case)),
    )
