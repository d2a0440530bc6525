"""Cards as NVML tells of them and as CUDA counts them: both on real cards, without a context.

Marked ``gpu``, so that a host without cards skips it with the way to run it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import cuda_answers
from pytest_remotegpu import cards


def values(real: list[str]) -> list[str | None]:
    """List values of the variable for a host with these cards."""
    first, last, many = real[0], real[-1], len(real)
    return [
        *(
            None,
            "",
            " 0",
            "0",
            "-1",
            "0,0",
            "0,-1,0",
            "0x1",
            "4294967296",
            f"{many}",
            f"0,{many},0",
        ),
        *(",".join(map(str, range(many))), ",".join(map(str, reversed(range(many))))),
        *(first, first.upper(), first[:12], first[:12] + "x", first + "x", f" {first}", "GPU-g"),
        *(f"{first},{first[:12]}", f"0,{first}", f"{first},0", f"{last},{first}", first[4:]),
    ]


@pytest.mark.gpu
def test_cuda_says_the_same() -> None:
    real = [card.uuid for card in cards.visible({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})]
    asked = values(real)
    done = subprocess.run(
        [sys.executable, cuda_answers.__file__],
        input=json.dumps(asked),
        env={**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    ours = [
        [
            card.uuid
            for card in cards.visible({} if value is None else {"CUDA_VISIBLE_DEVICES": value})
        ]
        for value in asked
    ]
    assert dict(zip(asked, ours, strict=True)) == dict(
        zip(asked, json.loads(done.stdout), strict=True)
    )
