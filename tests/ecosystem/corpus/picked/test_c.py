def test_c():
    pass


def test_fails():
    assert False
