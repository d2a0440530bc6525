"""Local tests with a module fixture, ahead of a file that is shipped."""


def test_one(data, each):
    assert data == 1


def test_two(data, each):
    assert data == 1
