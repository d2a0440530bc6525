import logging


def test_metadata(json_metadata):
    json_metadata["kept"] = {"a": [1, 2]}
    logging.getLogger("it").warning("logged %s", 7)
    print("printed")


def test_fails(json_metadata):
    json_metadata["why"] = "bad"
    assert False
