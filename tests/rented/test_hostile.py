"""Streams and containers that can't be trusted: another container's chunks, and hostile code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from modal_proto import api_pb2

from loopback import LoopbackModal
from session.running import run, said

from .test_faults import FIVE, numbers

T4 = "--remote=modal:T4"


@pytest.fixture
def ran(pytester: pytest.Pytester) -> Path:
    """Give the file in which each test that runs leaves its number."""
    path = pytester.path / "ran.txt"
    pytester.makepyfile(FIVE.format(ran=str(path)))
    return path


@pytest.mark.parametrize("at", [2, 3, 5])
def test_the_stream_goes_on_with_another_containers(
    pytester: pytest.Pytester, service: LoopbackModal, ran: Path, at: int
) -> None:
    """Its number is right, its mark is not: nothing of it is taken; no verdict is made twice."""

    def tamper(chunk: Any) -> Any:
        if chunk.index != at:
            return chunk
        service.faults.tamper_chunk = None
        begin = {24: 2, 25: 3, 26: 5}.get(chunk.data[0] & 31, 1) + 1  # CBOR's head, and the kind
        data = chunk.data[:begin] + os.urandom(8) + chunk.data[begin + 8 :]
        return api_pb2.DataChunk(index=chunk.index, data=data, data_format=chunk.data_format)

    service.faults.tamper_chunk = tamper
    result = run(pytester, T4)
    result.assert_outcomes(passed=5)
    assert "goes on with another one's" in said(result)
    assert len(service.calls) == 2
    assert set(numbers(ran)) == set(range(5))


HOSTILE = """
import json, os, pathlib, sys

if "modal._container_entrypoint" in sys.orig_argv:
    import modal
    from modal._runtime import container_io_manager as manager
    from modal_proto import api_pb2
    from pytest_remotegpu.backends.modal import container

    class Touch(Exception):
        def __reduce__(self):
            return pathlib.Path.touch, (pathlib.Path({proof!r}),)

    def chunk(number, kind, data):
        return kind + b"m" * 8 + number.to_bytes(4, "big") + data

    def greeting():
        call = modal.current_function_call_id()
        return chunk(1, b"H", json.dumps({{"call": call, "container": "ta-1"}}).encode())

{does}

    container.run = run
"""
"""A container whose own code is not what was deployed."""
DOES = {
    "a pickle as a chunk": (
        "refused: a container sent DATA_FORMAT_PICKLE",
        """
    def run(request):
        yield greeting()
        yield Touch()

    manager.IOContext._generator_output_format = lambda self: api_pb2.DATA_FORMAT_PICKLE
""",
    ),
    "a pickle as an exception": (
        "ended without an answer",
        """
    def run(request):
        yield greeting()
        raise Touch("oh")
""",
    ),
    "no greeting": (
        "a container greets with b'[[[[",
        """
    def run(request):
        yield chunk(1, b"H", b"[" * 100_000)
""",
    ),
    "an unprintable name": (
        "a container greets with",
        """
    def run(request):
        yield chunk(1, b"H", json.dumps({"call": "fc-1", "container": "\\x1b[2J"}).encode())
""",
    ),
    "a greeting of another kind": (
        "a container greets with b'[1]'",
        """
    def run(request):
        yield chunk(1, b"H", b"[1]")
""",
    ),
    "no chunk": (
        "a container sent dict, which is no chunk",
        """
    def run(request):
        yield {"call": 1}
""",
    ),
    "two greetings": (
        "container ta-1 has greeted twice",
        """
    def run(request):
        yield greeting()
        yield chunk(2, b"H", greeting()[13:])
""",
    ),
    "nonsense": (
        "where its hello was due",
        """
    def run(request):
        yield greeting()
        yield chunk(2, b"F", b"nonsense" * 1000)
""",
    ),
}


@pytest.fixture
def hostile(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[LoopbackModal, Path]]:
    """Have a service whose containers do what the parameter says; a path is there if it works."""
    code, proof = tmp_path / "code", tmp_path / "owned"
    code.mkdir()
    text = HOSTILE.format(proof=str(proof), does=DOES[request.param][1])
    code.joinpath("sitecustomize.py").write_text(text)
    surroundings = {"PYTHONPATH": str(code)}
    with LoopbackModal(tmp_path / "modal", container_environ=surroundings) as found:
        for name, value in found.environ.items():
            monkeypatch.setenv(name, value)
        yield found, proof


@pytest.mark.parametrize(
    ("hostile", "words"),
    [(name, words) for name, (words, _) in DOES.items()],
    ids=DOES,
    indirect=["hostile"],
)
@pytest.mark.timeout(90)
@pytest.mark.usefixtures("ran")
def test_code_of_a_container(
    pytester: pytest.Pytester, hostile: tuple[LoopbackModal, Path], words: str
) -> None:
    """It runs nothing here, and no test passes for it."""
    service, proof = hostile
    result = run(pytester, T4)
    assert result.ret == 2, said(result)
    result.assert_outcomes(errors=1)  # a file that nobody could collect
    [cause] = [line for line in said(result).splitlines() if line.startswith("cause: ")]
    assert words in cause
    assert service.containers
    assert not proof.exists()
