"""Reads what plugins write, and leaves out of it what differs between any two runs.

Each knows the format of one plugin, and nothing of how its suite was run.
"""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from parity.normal import Normaliser

__all__ = [
    "allure",
    "benchmark",
    "coverage",
    "folders",
    "html",
    "json_report",
    "keys",
    "names",
    "pictures",
    "report_log",
    "text",
]

CLOCK = frozenset({"duration", "created", "start", "stop", "created_at", "time", "timestamp"})
LOG = frozenset(
    {"msecs", "process", "processName", "relativeCreated", "thread", "threadName", "taskName"}
)


def _plain(found: Any, normal: Normaliser, left_out: frozenset[str]) -> Any:
    match found:
        case dict():
            return {
                normal.text(key): _plain(value, normal, left_out)
                for key, value in found.items()
                if key not in left_out and not (key == "user_properties" and _is_empty(value))
            }
        case list():
            return [_plain(one, normal, left_out) for one in found if not _is_ours(one)]
        case str():
            return normal.text(found)
        case _:
            return found


def _is_ours(found: Any) -> bool:
    """Tell whether it is a user property of our own, as a pair or as a mapping."""
    name = next(iter(found), "") if isinstance(found, list | dict) else ""
    return isinstance(name, str) and name.startswith("remotegpu_")


def _is_empty(found: Any) -> bool:
    return isinstance(found, list) and all(map(_is_ours, found))


def _load(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def keys(path: Path, normal: Normaliser) -> object:
    """Read the keys of a JSON object."""
    return sorted(normal.text(key) for key in _load(path))


def names(path: Path, normal: Normaliser) -> object:
    """Read the names of the files in a folder."""
    return sorted(normal.text(file.name) for file in path.iterdir() if file.is_file())


def text(path: Path, normal: Normaliser) -> object:
    """Read a text."""
    return normal.text(path.read_text("utf-8")).split("\n")


def folders(path: Path, normal: Normaliser) -> object:
    """Read the names of the folders in a folder."""
    return sorted(normal.text(each.name) for each in path.iterdir() if each.is_dir())


def pictures(path: Path, normal: Normaliser) -> object:
    """Read the names of the pictures in a folder."""
    return sorted(normal.text(file.name) for file in path.glob("*.svg"))


def coverage(path: Path, normal: Normaliser) -> object:
    """Read which lines and branches coverage.py has counted."""
    wanted = ("executed_lines", "missing_lines", "executed_branches", "missing_branches")
    return {
        normal.text(name): {key: data[key] for key in wanted if key in data}
        for name, data in _load(path)["files"].items()
    }


def json_report(path: Path, normal: Normaliser) -> object:
    """Read the file of pytest-json-report."""
    return _plain(_load(path), normal, CLOCK | LOG)


def report_log(path: Path, normal: Normaliser) -> object:
    """Read the file of pytest-reportlog."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return _plain(lines, normal, CLOCK)


class _Blob(HTMLParser):
    found = ""
    text: list[str]

    def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found = dict(attrs).get("data-jsonblob") or self.found


def html(path: Path, normal: Normaliser) -> object:
    """Read the data in the page of pytest-html."""
    parser = _Blob()
    parser.feed(path.read_text("utf-8"))
    return _plain(json.loads(parser.found), normal, CLOCK)


def allure(path: Path, normal: Normaliser) -> object:
    """Read the results of allure-pytest; their ids are random, so names stand for them."""
    kinds: dict[str, list[Any]] = {}
    for file in sorted(path.iterdir()):
        kind = file.name.partition("-")[2] if file.suffix == ".json" else file.suffix
        if "-" in file.stem:
            kind = file.stem.rpartition("-")[2] + file.suffix
        found = _load(file) if file.suffix == ".json" else file.read_text("utf-8")
        for label in found.get("labels", ()) if isinstance(found, dict) else ():
            if label["name"] == "thread":  # with the number of its process
                label["value"] = label["value"].partition("-")[2]
        kinds.setdefault(kind, []).append(
            _plain(found, normal, CLOCK | {"uuid", "source", "children"})
        )
    return {
        kind: sorted(found, key=lambda one: json.dumps(one, sort_keys=True))
        for kind, found in kinds.items()
    }


def benchmark(path: Path, normal: Normaliser) -> object:
    """Read the file of pytest-benchmark: all but what was measured."""
    found = _load(path)
    for one in found["benchmarks"]:
        one["stats"] = {name: type(value).__name__ for name, value in one["stats"].items()}
    found["machine_info"]["cpu"] = sorted(found["machine_info"]["cpu"])
    return _plain(found, normal, frozenset({"datetime", "time"}))
