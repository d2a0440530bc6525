"""What a data sheet says of a card, worked out."""

from __future__ import annotations

import pytest

from pytest_remotegpu.bench.ceilings import peak_bandwidth, peak_flops
from pytest_remotegpu.cards import Limits


@pytest.mark.parametrize(
    ("name", "memory_mhz", "bits", "gigabytes"),
    [
        ("T4", 5001, 256, 320),
        ("L4", 6251, 192, 300),
        ("A10G", 6251, 384, 600),
        ("A100 80GB", 1593, 5120, 2039),
        ("H100 SXM", 2619, 5120, 3352),
        ("H200", 3201, 6144, 4917),
    ],
)
def test_bandwidths_are_those_of_the_sheets(
    name: str, memory_mhz: int, bits: int, gigabytes: int
) -> None:
    found = peak_bandwidth(Limits(memory_mhz=memory_mhz, bus_bits=bits))
    assert found / 1e9 == pytest.approx(gigabytes, rel=0.01), name


@pytest.mark.parametrize(
    ("name", "capability", "count", "mhz", "dtype", "tera"),
    [
        ("T4", (7, 5), 40, 1590, "float16", 65),
        ("A100", (8, 0), 108, 1410, "bfloat16", 312),
        ("A100", (8, 0), 108, 1410, "float32", 156),  # by TF32
        ("A100", (8, 0), 108, 1410, "float64", 19.5),
        ("L4", (8, 9), 58, 2040, "float16", 121),
        ("H100 SXM", (9, 0), 132, 1830, "float16", 989),
        ("H100 SXM", (9, 0), 132, 1830, "float32", 495),
        ("H100 SXM", (9, 0), 132, 1980, "float64", 67),
        ("B200", (10, 0), 148, 1850, "bfloat16", 2250),
    ],
)
def test_operations_are_those_of_the_sheets(
    name: str, capability: tuple[int, int], count: int, mhz: int, dtype: str, tera: float
) -> None:
    found = peak_flops(capability, count, Limits(sm_mhz=mhz), dtype)
    assert found / 1e12 == pytest.approx(tera, rel=0.02), name


def test_what_is_not_known_is_nothing() -> None:
    assert peak_bandwidth(Limits()) == peak_bandwidth(Limits(memory_mhz=5000)) == 0
    assert peak_flops((9, 0), 132, Limits(), "float16") == 0
    assert peak_flops((99, 0), 132, Limits(sm_mhz=2000), "float16") == 0
    assert peak_flops((9, 0), 132, Limits(sm_mhz=2000), "int4") == 0
