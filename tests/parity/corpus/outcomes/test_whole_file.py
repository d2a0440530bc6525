"""A module that skips itself."""

import pytest

pytestmark = pytest.mark.gpu
pytest.importorskip("no_such_module_anywhere", reason="the module needs it")


def test_never():
    pass
