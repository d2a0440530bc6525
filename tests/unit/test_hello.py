"""The first frame: read back as it was sent, odd ones refused, and what differs is named."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_remotegpu.errors import ProtocolError
from pytest_remotegpu.protocol.hello import PROTOCOL, Hello, differences

HERE = Hello(package="1.2", python="3.12", pytest="9.2.0", executable="/here/python")
text = st.text(st.characters(exclude_categories=["Cs"]))
hellos = st.builds(
    Hello,
    protocol=st.integers(0, 99),
    package=text,
    python=text,
    pytest=text,
    gpus=st.lists(text).map(tuple),
    pretend=st.none() | st.integers(0, 9),
    host=text,
    executable=text,
    platform=text,
    extra=st.dictionaries(text, text),
)
plain = st.none() | st.booleans() | st.integers() | text
odd = plain | st.dictionaries(
    st.sampled_from([*Hello.__struct_fields__, "x"]),
    plain | st.lists(plain, max_size=2) | st.dictionaries(text, plain, max_size=2),
    max_size=3,
)


@given(hellos)
def test_what_is_sent_is_read(hello: Hello) -> None:
    assert Hello.decode(hello.encode()) == hello


def test_it_is_json_that_any_version_can_read() -> None:
    assert json.loads(HERE.encode())["protocol"] == PROTOCOL


def test_fields_of_a_later_version_are_left_out() -> None:
    body = json.dumps({"protocol": 7, "package": "9", "news": [1]}).encode()
    assert Hello.decode(body) == Hello(protocol=7, package="9")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"3",
        b'"text"',
        b"null",
        b"Welcome to gpubox!",
        b'{"protocol": "1"}',
        b'{"protocol": true}',
        b'{"protocol": 1.0}',
        b'{"package": 3}',
        b'{"python": null}',
        b'{"pytest": []}',
        b'{"host": {}}',
        b'{"executable": 1}',
        b'{"platform": 1}',
        b'{"gpus": 4}',
        b'{"pretend": "2"}',
        b'{"pretend": true}',
        b'{"extra": []}',
        b"[" * 100_000,
    ],
    ids=range(21),
)
def test_what_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a hello"):
        Hello.decode(body)


@given(st.binary() | odd.map(lambda data: json.dumps(data).encode()))
def test_no_bytes_upset_it(body: bytes) -> None:
    try:
        hello = Hello.decode(body)
    except ProtocolError:
        return
    differences(HERE, hello)
    assert Hello.decode(hello.encode()) == hello


def test_this_process_describes_itself() -> None:
    hello = Hello.here(gpus=("0",), host="box")
    assert hello.python == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert (hello.pytest, hello.executable) == (pytest.__version__, sys.executable)
    assert (hello.gpus, hello.host, hello.pretend, hello.platform) == (
        ("0",),
        "box",
        None,
        sys.platform,
    )
    assert hello.package


def test_equals_work_together() -> None:
    assert differences(HERE, HERE) == []


@pytest.mark.parametrize(
    "there",
    [
        replace(HERE, pytest="9.2.7"),
        replace(HERE, package="0.9"),
        replace(HERE, executable="/there/python", host="box", platform="darwin"),
        replace(HERE, gpus=("0", "1"), pretend=2),
    ],
    ids=["patch of pytest", "package", "place", "cards"],
)
def test_what_may_differ(there: Hello) -> None:
    assert differences(HERE, there) == []


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (
            replace(HERE, protocol=99, package="3.0"),
            ["protocol 99", "3.0", "/here/python -m pip install pytest-remotegpu==1.2"],
        ),
        (replace(HERE, python="3.11"), ["3.11", "3.12", "remotegpu_python"]),
        (replace(HERE, python="3.1"), ["far Python is 3.1 "]),
        (replace(HERE, pytest="8.4.0"), ["8.4.0", "9.2.0", "pip install pytest==9.2.0"]),
        (replace(HERE, pytest="9.20.0"), ["9.20.0"]),
        (
            replace(HERE, pytest="", executable=""),
            ["no pytest", "python -m pip install pytest==9.2.0"],
        ),
    ],
    ids=["protocol", "python", "python 3.1", "pytest", "pytest 9.20", "no pytest"],
)
def test_what_may_not_differ_is_named_with_its_fix(there: Hello, said: list[str]) -> None:
    (line,) = differences(HERE, there)
    assert [part for part in said if part not in line] == []


def test_all_differences_are_named_at_once() -> None:
    there = replace(HERE, protocol=99, python="3.13", pytest="")
    assert len(differences(HERE, there)) == 3
