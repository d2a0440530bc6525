import pytest


def test_sum(benchmark):
    assert benchmark(sum, range(100)) == 4950


@pytest.mark.benchmark(group="sizes", min_rounds=3)
@pytest.mark.parametrize("size", [10, 20])
def test_sizes(benchmark, size):
    benchmark.extra_info["size"] = size
    benchmark.pedantic(sorted, args=(list(range(size)),), rounds=4, iterations=2)


def test_none():
    pass


def test_fails(benchmark):
    @benchmark
    def inner():
        raise ValueError("slow and wrong")
