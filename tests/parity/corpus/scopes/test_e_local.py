"""Local tests after a shipped file."""


def test_one(data):
    assert data == 1


class TestLocal:
    def test_two(self, suite, data):
        print(suite)
