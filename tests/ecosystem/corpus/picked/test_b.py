def test_b():
    pass


def test_fails():
    assert False
