import pytest

import space.part


@pytest.mark.gpu
def test_no_file():
    assert getattr(space, "__file__", None) is None
    print(sorted(set(space.part.__path__)), __name__)


def test_here():
    assert __name__.endswith("test_namespace")
