import lib


def test_child():
    lib.child()
