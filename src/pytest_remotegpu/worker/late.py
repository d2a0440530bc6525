"""What conftests see of a worker that is one of several processes: what pytest-xdist's have.

Knows pytest and the order.
"""

from __future__ import annotations

import pytest

from pytest_remotegpu.protocol import orders

__all__ = ["Late"]


class Late:
    """Sets ``config.workerinput`` after every plugin has been configured; earlier, some break."""

    def __init__(self, order: orders.Order) -> None:
        self._order = order

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Show conftests that this is one of several processes, as pytest-xdist does."""
        given = self._order.options
        workerinput = {
            "workerid": given.shown_worker or self._order.worker,
            "workercount": given.workers,
            "testrunuid": given.run,
            "mainargv": given.shown_argv or given.argv,
        }
        # plugins look for the one, and then write into the other
        vars(config).update(workerinput=workerinput, workeroutput={})
