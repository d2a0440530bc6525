def test_a():
    pass


def test_fails():
    assert False
