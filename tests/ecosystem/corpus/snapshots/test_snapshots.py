import os


def test_same(snapshot):
    assert {"a": [1, 2], "b": "text"} == snapshot


def test_other(snapshot):
    assert os.environ["SAID"] == snapshot


def test_several(snapshot):
    assert 1 == snapshot
    assert 2 == snapshot
