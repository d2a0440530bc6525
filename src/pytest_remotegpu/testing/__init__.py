"""The conformance kit: what every backend must do, as tests to run over a backend of one's own.

In a test file of your own project::

    from pytest_remotegpu.testing import BackendConformance

    class TestMyBackend(BackendConformance):
        @pytest.fixture
        def backend(self):
            return MyBackend("gpubox")

pytest then runs each test of :class:`BackendConformance` over that backend, with real workers
behind it. See the class for what can be adjusted. Other code has no business with this package.
"""

from __future__ import annotations

from pytest_remotegpu.testing.conformance import BackendConformance

__all__ = ["BackendConformance"]
