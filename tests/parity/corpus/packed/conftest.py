"""The outermost of four conftests."""

import pytest


@pytest.fixture
def levels():
    return ["root"]


@pytest.fixture(params=["one", "two"])
def both(request):
    return request.param


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.level(len(item.path.parts)))
        item.user_properties.append(("conftest", "root"))
        if "renamed" in item.name:
            item.name = item.name.replace("renamed", "named anew")
            item.extra_keyword_matches.add("anew")
        if "later_gpu" in item.name:
            item.add_marker(pytest.mark.gpu)
