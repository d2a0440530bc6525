"""Projects whose tests several workers share."""

from __future__ import annotations

import json

import pytest

MODULE = """
    import os, pathlib, time
    import pytest
    pytestmark = pytest.mark.gpu

    @pytest.fixture(scope="module")
    def data(model):
        note("NAME.txt")

    def note(name):
        with open(name, "a") as file:
            file.write(f"{os.getpid()} ")

    @pytest.mark.parametrize("n", range(4))
    def test_it(n, data):
        time.sleep(0.05)
"""


TOGETHER = """
        deadline = time.monotonic() + 30
        while len(set(open("FILE").read().split())) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
"""
"""Put into a test, has it wait until a second worker has one, however busy the machine is: both
note something of their own in the file."""

CONFTEST = """
    import os
    import pytest

    @pytest.fixture(scope="session")
    def model():
        with open("session.txt", "a") as file:
            file.write(f"{os.getpid()} ")
        yield
        with open("session-ended.txt", "a") as file:
            file.write(f"{os.getpid()} ")
"""


def modules(pytester: pytest.Pytester, number: int, source: str = MODULE) -> None:
    pytester.makeconftest(CONFTEST)
    files = {f"test_m{at}": source.replace("NAME", f"m{at}") for at in range(number)}
    pytester.makepyfile(**files)


def lines(pytester: pytest.Pytester, name: str) -> list[str]:
    return (pytester.path / name).read_text().split()


def known(pytester: pytest.Pytester, **seconds: float) -> None:
    """Write durations as an earlier session leaves them."""
    path = pytester.path / ".pytest_cache/v/remotegpu/durations"
    path.parent.mkdir(parents=True)
    found = {f"{m}.py::test_it[{n}]": each for m, each in seconds.items() for n in range(4)}
    path.write_text(json.dumps(found))
