"""Tests that run here although their file was collected on the far side, and then here, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from pytest_remotegpu.grown import Absent, FarFile, FarItem

__all__ = ["collect", "name_groups", "real"]

GROUP: Final = "xdist_group"
NAMES_GROUPS: Final = "WorkerInteractor"
"""The class of pytest-xdist's plugin in its processes; its module has no name there."""


def collect(item: FarItem) -> dict[str, pytest.Item] | pytest.CollectReport:
    """Collect a test's file here; give its tests by their ids, or the report of the failure."""
    file = item.getparent(FarFile)
    assert file is not None
    above: Any = file.parent
    found: dict[str, pytest.Item] = {}
    for collector in above.ihook.pytest_collect_file(file_path=file.path, parent=above):
        report: pytest.CollectReport = collector.ihook.pytest_make_collect_report(
            collector=collector
        )
        if not report.passed:
            return report
        found.update((test.nodeid, test) for test in _tests(report))
    return found


def _tests(report: pytest.CollectReport) -> Iterator[pytest.Item]:
    for node in report.result:
        if isinstance(node, pytest.Item):
            yield node
        else:
            yield from _tests(node.ihook.pytest_make_collect_report(collector=node))


def real(item: FarItem, found: Any) -> pytest.Item:
    """Give the test of the same id that was collected here, or one that says why there is none.

    :param found: the tests of its file as they were collected here, by their ids, or the report of
        that collection's failure.
    """
    same: pytest.Item | None = found.get(item.told_id) if isinstance(found, dict) else None
    if same is None:
        text = "it is not among the tests that its file has here"
        absent: Absent = Absent.from_parent(_folder(item), name=item.name, nodeid=item.told_id)
        absent.why = text if isinstance(found, dict) else found
        absent.place = item.place
        absent.own_markers += item.iter_markers(GROUP)
        return absent
    for mark in item.own_markers[item.told :]:
        same.add_marker(getattr(pytest.mark, mark.name).with_args(*mark.args, **mark.kwargs))
    same.user_properties += item.user_properties
    return same


def name_groups(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Have pytest-xdist add to ids the groups by which it keeps tests together.

    It has done so to what these tests take the place of.
    """
    manager = config.pluginmanager
    plugins = manager.get_plugins()
    others = [each for each in plugins if type(each).__name__ != NAMES_GROUPS]
    if items and len(others) < len(plugins):
        name = manager.subset_hook_caller("pytest_collection_modifyitems", others)
        name(session=items[0].session, config=config, items=list(items))


def _folder(item: FarItem) -> pytest.Collector:
    file: Any = item.getparent(FarFile)
    return file.parent  # type: ignore[no-any-return]
