import os


def test_env():
    assert os.environ["FROM_ENV"] == "told"
    assert os.environ["GIVEN"] == "outside"
    assert os.environ["NEW"] == "default"
    assert os.environ["FOLDER"] == os.path.expanduser("~/x")


AT_IMPORT = os.environ.get("FROM_ENV")


def test_import():
    assert AT_IMPORT == "told"
