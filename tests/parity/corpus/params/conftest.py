"""Parametrises from a hook and has parametrised fixtures of every scope."""

import pytest


def pytest_generate_tests(metafunc):
    if "generated" in metafunc.fixturenames:
        metafunc.parametrize("generated", [10, 20], ids=lambda n: f"gen:{n}")


def around(name):
    def fixture(request):
        print(f"{name} {request.param!r} up")
        yield f"{name}-{request.param}"
        print(f"{name} {request.param!r} down")

    return fixture


per_session = pytest.fixture(scope="session", params=["s1", "s2"])(around("session"))
per_module = pytest.fixture(scope="module", params=[1, 2])(around("module"))
per_class = pytest.fixture(scope="class", params=[None, 0.5])(around("class"))
per_function = pytest.fixture(params=["x", pytest.param("y", id="why")])(around("function"))
