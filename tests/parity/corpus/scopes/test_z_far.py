"""The last file is far: the session fixture is torn down here."""

import pytest

pytestmark = pytest.mark.gpu


def test_once(model):
    assert model == 1


def test_end(model, each):
    print("the end")
