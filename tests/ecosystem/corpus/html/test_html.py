import pytest_html


def test_extras(extras):
    """It has extras."""
    extras.append(pytest_html.extras.url("https://example.org", name="a link"))
    extras.append(pytest_html.extras.json({"a": 1}))
    extras.append(pytest_html.extras.image("iVBORw0KGgo=", mime_type="image/png", extension="png"))
    print("printed")


def test_fails():
    """It fails."""
    assert 1 == 2


def test_metadata(record_testsuite_property, metadata):
    assert "Python" in metadata
