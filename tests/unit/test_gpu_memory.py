"""What a test did with GPU memory, what it lacked, and when a process holds too much of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from fake_cuda import GIB, MIB, CudaTorch, Library, OutOfMemoryError
from pytest_remotegpu.protocol import events
from pytest_remotegpu.worker import memory
from pytest_remotegpu.worker.cuda import Driver
from pytest_remotegpu.worker.ledger import Ledger

TORCH = (
    "CUDA out of memory. Tried to allocate 100.00 GiB. GPU 1 has a total capacity of 79.11 GiB of "
    "which 78.58 GiB is free."
)
CUPY = "Out of memory allocating 5,368,709,120 bytes (allocated so far: 0 bytes)."
NUMBA = "[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY"


def chained(cause: BaseException, error: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


class UnspeakableError(Exception):
    """An error whose text can't be had."""

    def __str__(self) -> str:
        raise RuntimeError("CUDA out of memory")


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (OutOfMemoryError(TORCH), True),
        (OutOfMemoryError(CUPY), True),
        (RuntimeError(NUMBA), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), True),
        (chained(OutOfMemoryError(TORCH), KeyError("x")), True),
        (ExceptionGroup("two", [ValueError("x"), RuntimeError(TORCH)]), True),
        (AssertionError("'CUDA out of memory' is not in ''"), False),
        (chained(OutOfMemoryError(TORCH), AssertionError("it should not")), True),
        (MemoryError("out of memory"), False),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (UnspeakableError(), False),
        (pytest.fail.Exception("DID NOT RAISE CUDA out of memory"), False),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_lack_of_memory_is_told_apart(error: BaseException, lacks: bool) -> None:
    assert memory.is_lack(error) is lacks


@pytest.mark.parametrize(
    ("error", "cudas"),
    [
        (RuntimeError("CUDA error: device-side assert triggered\nCompile with ..."), True),
        (
            RuntimeError("[700] Call to cuCtxSynchronize results in CUDA_ERROR_ILLEGAL_ADDRESS"),
            True,
        ),
        (
            ExceptionGroup("both", [RuntimeError("CUDA error: x"), RuntimeError("CUDA error: y")]),
            True,
        ),
        (ExceptionGroup("one", [RuntimeError("CUDA error: x"), ValueError("own fault")]), False),
        (ValueError("nothing of the kind"), False),
    ],
)
def test_errors_of_cuda_are_known_by_their_text(error: BaseException, cudas: bool) -> None:
    assert memory.is_cuda_error(error) is cudas


def lack(error: BaseException, torch: Any, free: float, total: float) -> str:
    asked: list[int] = []

    def ask(device: int) -> tuple[int, int]:
        asked.append(device)
        return int(free * GIB), int(total * GIB)

    text, fit = memory.describe_lack(error, torch, ask, 0)
    assert (f"min_memory_gib={fit})" in text) == bool(fit)
    assert f"device {asked[0]}\n" in text
    return text


def test_a_lack_says_what_was_asked_for_and_which_card_would_do() -> None:
    torch = CudaTorch()
    torch.cuda.allocate(3 * GIB)
    torch.cuda.allocate(-GIB)
    # the allocator of the fake has nothing on device 1
    assert lack(OutOfMemoryError(TORCH), torch, 78.6, 79.1).splitlines() == [
        "device 1",
        "asked for: 100.0 GiB",
        "peak of this test: 0 bytes allocated, 0 bytes reserved",
        "the card: 78.6 GiB free of 79.1 GiB",
        "hint: gpu(min_memory_gib=141) asks for a card with more memory",
    ]
    text = lack(
        OutOfMemoryError("CUDA out of memory. Tried to allocate 512.00 MiB."), torch, 0.2, 3.5
    )
    assert "asked for: 512.0 MiB\npeak of this test: 3.0 GiB allocated, 3.0 GiB reserved\n" in text


@pytest.mark.parametrize(
    ("asked", "free", "total", "hint"),
    [
        ("78.00", 14.0, 14.6, "min_memory_gib=96"),
        ("15.00", 14.0, 14.6, "min_memory_gib=24"),
        ("39.60", 39.0, 39.4, "min_memory_gib=48"),
        ("79.50", 79.0, 79.1, "min_memory_gib=96"),
        ("139.90", 139.0, 139.8, "min_memory_gib=192"),
        ("900.00", 139.0, 139.8, None),
        ("20.00", 3.0, 79.1, "hint: 76.1 GiB of it are held by others than torch's allocator here"),
        ("20.00", 78.0, 79.1, None),
        ("", 78.0, 79.1, "min_memory_gib=96"),
    ],
)
def test_hints(asked: str, free: float, total: float, hint: str | None) -> None:
    text = "CUDA out of memory." + (f" Tried to allocate {asked} GiB." if asked else "")
    said = lack(OutOfMemoryError(text), CudaTorch(), free, total)
    assert (hint or "the card: ") in said
    assert ("hint: " in said) is (hint is not None)


def test_a_lack_without_torch() -> None:
    said = lack(OutOfMemoryError(CUPY), None, 3.0, 14.6)
    assert "peak" not in said
    assert "asked for: 5.0 GiB\nthe card: 3.0 GiB free of 14.6 GiB\nhint: gpu(min_mem" in said


def test_a_card_that_does_not_answer_gives_no_hint() -> None:
    assert lack(OutOfMemoryError(TORCH), None, 0, 0) == "device 1\nasked for: 100.0 GiB"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (2**20, "1.0 MiB"), (1.5 * GIB, "1.5 GiB")],
)
def test_sizes(count: float, text: str) -> None:
    assert memory.size(count) == text


class Stub:
    """A stand-in for torch, as a project's tests may put into ``sys.modules``."""

    def __getattr__(self, name: str) -> Any:
        return Stub()

    def __call__(self) -> Any:
        return self


def test_only_a_torch_that_has_started_cuda_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert memory.torch_in_use() is None
    for stand_in in (object(), None, Stub()):
        monkeypatch.setitem(sys.modules, "torch", stand_in)
        assert memory.torch_in_use() is None
    torch = CudaTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert memory.torch_in_use() is torch
    torch.cuda.initialised = False
    assert memory.torch_in_use() is None


# ---------------------------------------------------------------- test after test


class House:
    """A process with a card of 4 GiB, torch's allocator, and a ledger."""

    def __init__(self) -> None:
        library = Library()
        library.active = {0}
        self.driver = Driver(library)
        self.torch = CudaTorch()
        self.allocate: Callable[[int], None] = self.torch.cuda.allocate
        self.ledger = Ledger()

    def test(self, name: str, *sizes: int, wider: bool = False) -> events.Memory:
        """Run a test that asks for these sizes, one after the other."""
        self.ledger.begin(self.driver, self.torch)
        self.ledger.wider = wider
        for size in sizes:
            self.allocate(size)
        found = self.ledger.end(7, name, self.driver, self.torch)
        assert found is not None
        return found


def test_each_test_has_its_own_peak() -> None:
    house = House()
    first = house.test("first", 5 * MIB, 20 * MIB, -25 * MIB)
    assert first == events.Memory(7, 25 * MIB, 25 * MIB, 0, 3 * GIB, 4 * GIB)
    second = house.test("second", 2 * MIB, -2 * MIB)
    assert (second.allocated, second.reserved) == (2 * MIB, 25 * MIB)


def test_without_torch_or_a_context_there_is_nothing_to_say() -> None:
    house = House()
    ledger = Ledger()
    ledger.begin(None, None)
    assert ledger.end(0, "x", None, None) is None
    assert ledger.end(0, "x", house.driver, None) is None
    assert ledger.end(0, "x", Driver(Library()), house.torch) is None
    house.torch.cuda.counts = False
    ledger.begin(house.driver, house.torch)
    assert ledger.end(0, "x", house.driver, house.torch) is None


def test_what_stays_is_a_leak_unless_a_wider_fixture_made_it() -> None:
    house = House()
    assert house.test("leaks", 3 * MIB).leaked == 3 * MIB
    assert house.test("fixture", 3 * MIB, wider=True).leaked == 0
    assert house.test("frees", -MIB).leaked == -MIB


class Held:
    """Memory that is given back once the collector has come by."""

    def __init__(self, torch: CudaTorch, size: int) -> None:
        self._torch, self._size = torch, size
        torch.cuda.allocate(size)
        self.me = self

    def __del__(self) -> None:
        self._torch.cuda.allocate(-self._size)


def test_garbage_is_no_leak() -> None:
    house = House()

    def make(size: int) -> None:
        Held(house.torch, size)

    house.allocate = make
    assert house.test("makes a circle", 3 * MIB).leaked == 0


@pytest.mark.parametrize("size", [8519680, 33554432, 2 * 33554432 + MIB, 8519680 + MIB // 2])
def test_workspaces_of_cublas_are_no_leak(size: int) -> None:
    house = House()
    assert house.test("first product", size).leaked == 0
    assert house.test("leaks", size + 4 * MIB).leaked == size + 4 * MIB


def test_there_are_only_so_many_workspaces() -> None:
    house = House()
    assert [house.test("t", 33554432).leaked for _ in range(6)] == [0] * 4 + [33554432] * 2


def test_a_process_is_outgrown_when_strays_fill_the_card() -> None:
    house = House()
    house.test("small", 100 * MIB)
    house.test("large", 1900 * MIB)
    assert not house.ledger.outgrown(), "half of the card is free"
    house.test("last", 100 * MIB)
    said = house.ledger.outgrown()
    assert "2.1 GiB of 4.0 GiB of GPU memory were still allocated, 2.1 GiB of it by no " in said
    assert said.endswith("it grew most, by 1.9 GiB, in large")


def test_what_fixtures_keep_would_be_made_again_by_a_new_process() -> None:
    house = House()
    house.allocate(200 * MIB)  # by an import
    house.test("fixture", 3 * GIB, wider=True)
    house.test("leaks", 300 * MIB)
    assert not house.ledger.outgrown()
    house.test("leaks", 300 * MIB)
    assert "600.0 MiB of it by no fixture" in house.ledger.outgrown()
    house.test("fixture goes", -2 * GIB)
    assert not house.ledger.outgrown()


def test_what_goes_between_tests_was_a_fixtures() -> None:
    house = House()
    house.test("fixture", GIB, wider=True)
    house.test("leaks", 2 * GIB)
    house.allocate(-GIB)
    house.test("uses nothing")
    assert not house.ledger.outgrown(), "half of the card is free"
    house.allocate(GIB)
    house.test("uses nothing")
    assert "2.0 GiB of it by no fixture" in house.ledger.outgrown()
