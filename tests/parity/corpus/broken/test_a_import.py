"""Cannot be imported."""

import pytest

import no_such_module_anywhere


@pytest.mark.gpu
def test_never():
    pass
