"""Benchmarks on a real card: they agree with triton's, and with what the card can do.

What two clocks say of an idle card is printed with each test, whether it passes or not.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from pytest_remotegpu import cards
from pytest_remotegpu.bench import ceilings, surroundings
from pytest_remotegpu.bench.cuda import CudaTimer, cache_bytes
from pytest_remotegpu.bench.estimates import median
from pytest_remotegpu.bench.fixture import GpuBenchmark
from pytest_remotegpu.bench.running import FasterThanLightError
from pytest_remotegpu.bench.timing import Budget, CaptureError, Mode, measure

from . import Run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("default"),  # torch and triton have some of their own on a card
]

NEAR = 0.03
"""How far two clocks may be apart on an idle card."""
REPEATS = 3


@pytest.fixture
def torch(gpu_device: Any) -> Any:
    """Give torch, which only these tests need, with this test's card as its own."""
    found = pytest.importorskip("torch")
    with found.cuda.device(gpu_device):
        yield found


def large_add(torch: Any) -> Callable[[], object]:
    one, other = (torch.randn(2**26, device="cuda") for _ in range(2))
    out = torch.empty_like(one)
    return lambda: torch.add(one, other, out=out)


def large_sum(torch: Any) -> Callable[[], object]:
    one = torch.randn(2**27, device="cuda", dtype=torch.float16)
    return lambda: one.sum()  # noqa: PLW0108 -- typed, as torch is not


def large_product(torch: Any) -> Callable[[], object]:
    one, other = (torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(one)
    return lambda: torch.mm(one, other, out=out)


def large_softmax(torch: Any) -> Callable[[], object]:
    one = torch.randn(16384, 8192, device="cuda", dtype=torch.float16)
    return lambda: torch.softmax(one, -1)


def single_product(torch: Any) -> Callable[[], object]:
    one, other = (torch.randn(2048, 2048, device="cuda") for _ in range(2))
    out = torch.empty_like(one)
    return lambda: torch.mm(one, other, out=out)


def small_add(torch: Any) -> Callable[[], object]:
    one = torch.ones(1024, device="cuda")
    return lambda: one.add_(1)


def small_product(torch: Any) -> Callable[[], object]:
    one, other = (torch.randn(512, 512, device="cuda", dtype=torch.float16) for _ in range(2))
    return lambda: one @ other


def small_norm(torch: Any) -> Callable[[], object]:
    one = torch.randn(2048, 1024, device="cuda", dtype=torch.float16)
    return lambda: torch.nn.functional.layer_norm(one, (1024,))


Kernel = Callable[[Any], Callable[[], object]]
LARGE = [large_add, large_sum, large_product, large_softmax, single_product]
SMALL = [small_add, small_product, small_norm, large_softmax]


def between(ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[float, float]:
    """Give both clocks' medians, taken in turns."""
    pairs = [(ours(), theirs()) for _ in range(REPEATS)]
    one, other = (statistics.median(numbers) for numbers in zip(*pairs, strict=True))
    print(f"\nours {one:.5f} ms, theirs {other:.5f} ms, {one / other - 1:+.2%}: {pairs}")  # noqa: T201 -- the point
    return one, other


@pytest.mark.parametrize("kernel", LARGE)
def test_eager_agrees_with_do_bench(
    torch: Any, gpu_benchmark: GpuBenchmark, kernel: Kernel
) -> None:
    """As long as theirs, since a product of matrices reaches the card's power cap after a while."""
    testing = pytest.importorskip("triton.testing")
    call = kernel(torch)
    ours, theirs = between(
        lambda: gpu_benchmark(call, modes="eager", warmup=100, rounds=400).ms().mid,
        lambda: testing.do_bench(call, return_mode="median"),
    )
    assert ours == pytest.approx(theirs, rel=NEAR)


@pytest.mark.parametrize("kernel", SMALL)
def test_a_graph_agrees_with_do_bench_cudagraph(
    torch: Any, gpu_benchmark: GpuBenchmark, kernel: Kernel
) -> None:
    testing = pytest.importorskip("triton.testing")
    call = kernel(torch)

    def theirs() -> float:
        with torch.cuda.stream(torch.cuda.Stream()):
            return float(testing.do_bench_cudagraph(call, return_mode="median"))

    ours, other = between(lambda: gpu_benchmark(call, modes="graph").ms().mid, theirs)
    assert ours == pytest.approx(other, rel=NEAR)


def test_a_small_kernel_is_small(torch: Any, gpu_benchmark: GpuBenchmark) -> None:
    """A wait in each repetition would show tens of microseconds."""
    result = gpu_benchmark(small_add(torch))
    print(result.plain()["contestants"])  # noqa: T201 -- the point
    assert result.ms(mode="graph").mid < 0.010
    assert result.entrants["contestant"].bound() == "host-bound"


def test_a_large_kernel_is_bound_by_the_card(torch: Any, gpu_benchmark: GpuBenchmark) -> None:
    result = gpu_benchmark(single_product(torch))
    assert result.entrants["contestant"].bound() == "device-bound"
    eager, graph = result.ms(mode="eager"), result.ms(mode="graph")
    assert eager.mid == pytest.approx(graph.mid, rel=0.03)


def test_a_cold_cache_costs(torch: Any, gpu_benchmark: GpuBenchmark) -> None:
    """Both modes see it: one is flushed, in the other inputs rotate."""
    size = cache_bytes("cuda") // 10
    one = torch.randn(size, device="cuda", dtype=torch.float16)
    out = torch.empty_like(one)

    def add(one: Any, out: Any) -> None:
        torch.add(one, 1, out=out)

    cold = gpu_benchmark(add, args=(one, out), flush=True)
    warm = gpu_benchmark(add, args=(one, out), flush=False)
    assert cold.l2 == {Mode.EAGER: "cold", Mode.GRAPH: "cold"}
    assert warm.l2 == {Mode.EAGER: "warm", Mode.GRAPH: "warm"}
    for mode in Mode.EAGER, Mode.GRAPH:
        print(mode, cold.ms(mode=mode), warm.ms(mode=mode))  # noqa: T201 -- the point
    assert cold.ms(mode="graph").low > 1.2 * warm.ms(mode="graph").high
    spans = {
        flush: median(CudaTimer(flush=flush).spans([lambda: add(one, out)], 40)[0])
        for flush in (True, False)
    }
    print(spans)  # noqa: T201 -- the point
    assert spans[True].low > 1.2 * spans[False].high
    # neither is in the eager time where the host takes longer
    hosts = [result.entrants["contestant"].host for result in (cold, warm)]
    print(hosts)  # noqa: T201 -- the point
    for result, host in zip((cold, warm), hosts, strict=True):
        assert host is not None
        assert result.ms(mode="eager").mid == pytest.approx(
            max(host, spans[result is cold].mid), rel=0.3
        )


def test_nothing_is_faster_than_light(torch: Any, gpu_benchmark: GpuBenchmark) -> None:
    one = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    true = 2 * 4096**3
    result = gpu_benchmark(torch.mm, args=(one, one), flops=true)
    share = result.entrants["contestant"].rates[Mode.EAGER]["flops"].share
    print(share)  # noqa: T201 -- the point
    assert share is not None
    assert 0.3 < share < 1.3
    with pytest.raises(FasterThanLightError, match=r"contestant \(eager\) would do"):
        gpu_benchmark(torch.mm, args=(one, one), flops=50 * true)
    with pytest.raises(FasterThanLightError, match="byte/s"):
        gpu_benchmark(lambda: None, bytes=10 * 2**30, modes="eager")


@pytest.mark.usefixtures("torch")
def test_ceilings_are_what_the_card_can(gpu_device: Any) -> None:
    timer = CudaTimer(gpu_device)
    uuid = surroundings.uuid_of(timer.device.index)
    for dtype in ceilings.DTYPES:
        found = ceilings.of_card(timer, uuid, dtype)
        print(found)  # noqa: T201 -- the point
        assert found.flops is not None
        assert found.most_flops is not None
        least = 0.05 if dtype == "float32" else 0.3  # TF32 is not what is measured
        assert least * found.most_flops < found.flops <= found.most_flops
        assert 0.7 * found.most_bandwidth < found.bandwidth <= found.most_bandwidth
        assert ceilings.of_card(timer, uuid, dtype).flops == found.flops
    assert cards.limits(uuid).sm_mhz


def test_what_moves_bytes_alone_reaches_its_ceiling(
    torch: Any, gpu_benchmark: GpuBenchmark
) -> None:
    """A copy as such is another engine's work in a graph, and slower."""
    one = torch.zeros(2**28, device="cuda")
    other = torch.empty_like(one)

    def move(one: Any) -> None:
        torch.mul(one, 2, out=other)

    result = gpu_benchmark(move, args=(one,), bytes=2 * one.nbytes)
    for mode in Mode.EAGER, Mode.GRAPH:
        rate = result.entrants["contestant"].rates[mode]["bytes"]
        print(mode, rate)  # noqa: T201 -- the point
        assert rate.share is not None
        assert 0.8 < rate.share < 1.05


def test_the_way_back_is_captured_too(torch: Any, gpu_benchmark: GpuBenchmark) -> None:
    one = torch.randn(2048, 2048, device="cuda", requires_grad=True)
    there = gpu_benchmark(torch.matmul, args=(one, one.detach()))
    back = gpu_benchmark(torch.matmul, args=(one, one), backward=True)
    print(there.ms(mode="graph"), back.ms(mode="graph"))  # noqa: T201 -- the point
    assert not back.entrants["contestant"].uncaptured
    assert back.ms(mode="graph").mid == pytest.approx(2 * there.ms(mode="graph").mid, rel=0.3)
    assert one.grad is None
    two = {"a": torch.matmul, "b": lambda x, y: (x @ y).sin()}
    result = gpu_benchmark(two, args=(one, one), backward=True)
    assert not [entrant.uncaptured for entrant in result.entrants.values() if entrant.uncaptured]


def test_what_can_not_be_captured_says_why(torch: Any, gpu_benchmark: GpuBenchmark) -> None:
    one = torch.randn(2**20, device="cuda")

    def waits() -> None:
        one.sum()
        torch.cuda.synchronize()

    result = gpu_benchmark({"item": lambda: one.sum().item(), "waits": waits}, reference=one.sum)
    assert list(result.entrants["waits"].times) == [Mode.EAGER]
    print(result.entrants["waits"].uncaptured)  # noqa: T201 -- the point
    entrant = result.entrants["item"]
    print(entrant.uncaptured, entrant.bound(), result.notes)  # noqa: T201 -- the point
    assert "can't be captured as a CUDA graph" in entrant.uncaptured
    assert list(entrant.times) == [Mode.EAGER]
    assert list(result.entrants["reference"].times) == [Mode.EAGER, Mode.GRAPH]
    assert entrant.bound() in {"host-bound", "device-bound"}
    with pytest.raises(CaptureError, match="contestant: it can't be captured"):
        gpu_benchmark(lambda: one.sum().item(), modes=("graph",))
    with pytest.raises(CaptureError, match="it does nothing on the card"):
        gpu_benchmark(lambda: None, modes=("graph",))
    assert gpu_benchmark(one.sum).ms(mode="graph").mid > 0  # the card is as it was
    assert torch.randn(3, device="cuda").isfinite().all()


def test_what_raises_is_named(torch: Any, gpu_benchmark: GpuBenchmark) -> None:
    one = torch.randn(8, 9, device="cuda")
    with pytest.raises(RuntimeError) as caught:
        gpu_benchmark({"good": one.sum, "bad": lambda: one @ one})
    assert "raised by the contestant 'bad' in its first call" in caught.value.__notes__


def test_the_card_is_looked_at(torch: Any, gpu_benchmark: GpuBenchmark) -> None:
    data = gpu_benchmark(large_product(torch)).plain()
    print(data["state"], data["environment"], data["notes"], data["why"])  # noqa: T201 -- the point
    for when in "before", "after":
        seen = data["state"][when]
        assert seen["sm_mhz"] > 0
        assert seen["memory_mhz"] > 0
        assert seen["watts"] > 0
        assert 0 < seen["celsius"] < 120
        assert seen["held_back"] is not None
    assert data["environment"]["device"] == torch.cuda.get_device_name()
    assert data["environment"]["driver"] == cards.driver()
    assert data["environment"]["clock"]["most_sm_mhz"] >= data["state"]["after"]["sm_mhz"]


def test_what_is_compiled_counts_apart(torch: Any, gpu_benchmark: GpuBenchmark) -> None:
    pytest.importorskip("triton")
    one = torch.randn(2**24, device="cuda")

    def body(one: Any) -> Any:
        return (one * 2).relu()

    compiled = torch.compile(body)
    first, second = (gpu_benchmark(compiled, args=(one,)) for _ in range(2))
    print(first.entrants, second.entrants)  # noqa: T201 -- the point
    assert first.entrants["contestant"].first > 10 * second.entrants["contestant"].first
    for mode in Mode.EAGER, Mode.GRAPH:
        assert first.ms(mode=mode).mid == pytest.approx(second.ms(mode=mode).mid, rel=0.1)


def test_a_session_far_away_has_its_table_here(run: Run, pytester: pytest.Pytester) -> None:
    """The worker holds the card; what it measured is judged, printed and written by this side."""
    test = """
        import pytest
        import torch

        @pytest.mark.gpu
        @pytest.mark.gpu_benchmark(rounds=20)
        def test_add(gpu_benchmark, gpu_device):
            one = torch.randn(2**24, device=gpu_device)
            slow = lambda a, b: (a + b).clone()
            moved = 2 * one.nbytes  # it is read once
            result = gpu_benchmark(torch.add, reference=slow, args=(one, one), bytes=moved)
            assert result.faster_than("reference", by=1.1)
            assert result.faster_than("reference", by=1.1, mode="graph")
    """
    result = run("--gpu-benchmark-compare=base.json", test_it=test)
    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines(
        [
            r"=+ gpu benchmarks =+",
            r"NVIDIA .*, driver [\d.]+, torch .*, CUDA [\d.]+",
            r"  contestant  eager .* TB/s \(\d+% of measured \w+\)  device-bound  cold L2",
            r"  contestant  graph .* TB/s \(\d+% of measured \w+\) +cold L2",
            r"there was no baseline base\.json, and now there is: 1 of 1",
        ]
    )
    base = pytester.path / "base.json"
    kept = json.loads(base.read_text())
    assert kept["benchmarks"][0]["benchmark"]["environment"]["dtype"] == "float32"
    run("--gpu-benchmark-compare=base.json").assert_outcomes(passed=1)
    for contestant in kept["benchmarks"][0]["benchmark"]["contestants"]:
        for timed in contestant["modes"].values():
            timed.update(ms=timed["ms"] / 2, low=timed["low"] / 2, high=timed["high"] / 2)
    base.write_text(json.dumps(kept))
    result = run("--gpu-benchmark-compare=base.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["slower than in the baseline base.json, by more than x1.05*"])


def test_rounds_stay_in_turns(torch: Any, gpu_device: Any) -> None:
    """The same kernel twice is as fast as itself, within its own interval's width."""
    call = large_softmax(torch)
    timer = CudaTimer(gpu_device)
    for mode in timer.modes:
        budget = Budget(warmup=10, rounds=30)
        found = measure({"a": call, "b": call}, timer, mode=mode, budget=budget)
        quotient = statistics.median(a / b for a, b in zip(*found.values(), strict=True))
        print(mode, quotient)  # noqa: T201 -- the point
        assert quotient == pytest.approx(1, abs=0.02)
