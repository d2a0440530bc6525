"""Fixtures of every scope that count how often they are set up.

A wide fixture that prints is used on one side only: where both sides use it, it exists twice.
"""

import pytest

pytest_plugins = ["pytester"]

UPS = {}


def counted(request):
    key = (request.fixturename, request.node.nodeid)
    UPS[key] = UPS.get(key, 0) + 1
    print(f"{request.fixturename} up")
    return UPS[key]


@pytest.fixture(scope="session")
def model(request):
    yield counted(request)
    print("model down")


@pytest.fixture(scope="session")
def always_broken(request):
    counted(request)
    raise RuntimeError("no model")


@pytest.fixture(scope="module")
def data(request):
    yield counted(request)
    print("data down")


@pytest.fixture(scope="class")
def suite(request):
    yield counted(request)
    print("suite down")


@pytest.fixture
def each(request):
    yield counted(request)
    print("each down")


def pick_scope(fixture_name, config):
    return config.getini("console_output_style") and "module"


@pytest.fixture(scope=pick_scope)
def dynamic(request):
    yield counted(request)
    print("dynamic down")


@pytest.fixture(autouse=True)
def surrounds(request):
    request.node.seen = request.node.name
    yield
    assert request.node.seen == request.node.name
