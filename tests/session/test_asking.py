"""A far side gets contents that it was told of, and no others, and not for ever."""

from __future__ import annotations

import sys
import textwrap

import pytest

from session.running import run, said

WORKER = """
    import os
    import sys

    from pytest_remotegpu.protocol import events, frames
    from pytest_remotegpu.protocol.hello import Hello

    def write(data):
        os.write(1, data)

    write(frames.frame(Hello.here(pretend=1).encode()))
    cutter, order, sent = frames.Frames(2**30), None, 0
    hello = True
    while chunk := os.read(0, 2**20):
        for body in cutter.feed(chunk):
            if hello:
                hello = False
                continue
            message = frames.read_message(body)
            if order is None:
                order = message
            wanted = {wanted}
            write(frames.encode_frame(order.worker, order.nonce, sent,
                                      frames.encode_events([events.Need([wanted])])))
            sent += 1
"""


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ("order.tree.digest", "the same contents are asked for again and again"),
        ("'0' * 64", "contents are asked for that are no part of the tree"),
        ("'../../etc/passwd'", "contents are asked for that are no part of the tree"),
    ],
)
def test_what_may_not_be_asked(pytester: pytest.Pytester, wanted: str, why: str) -> None:
    script = pytester.path.parent / f"{pytester.path.name}-worker.py"
    script.write_text(textwrap.dedent(WORKER).replace("{wanted}", wanted), encoding="utf-8")
    pytester.makeini(f"[pytest]\nremotegpu_python = {sys.executable}\n")
    pytester.makepyfile("import pytest\n\n@pytest.mark.gpu\ndef test_it(): pass\n")
    result = run(pytester, f"--remote=command:{sys.executable} {script}")
    result.assert_outcomes(errors=1)
    assert f"broke the protocol: {why}" in said(result)
