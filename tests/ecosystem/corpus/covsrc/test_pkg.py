import pkg


def test_one():
    assert pkg.one() == 1
