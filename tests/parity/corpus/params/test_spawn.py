"""A helper of the test file is pickled by reference into a child process."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest


def square(x):
    return x * x


@pytest.mark.gpu
def test_pool():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(square, 4).result() == 16
