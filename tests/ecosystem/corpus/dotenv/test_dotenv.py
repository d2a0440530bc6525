import os


def test_dotenv():
    assert os.environ["FROM_FILE"] == "told"
    assert os.environ["GIVEN"] == "inside"
