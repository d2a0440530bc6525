import time

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st


@given(st.integers())
def test_holds(n):
    event("even" if n % 2 == 0 else "odd")
    assert n * 2 == n + n


@given(st.lists(st.integers()))
def test_fails(numbers):
    assert sum(numbers) < 1000


@settings(deadline=20, max_examples=3)
@given(st.just(1))
def test_deadline(one):
    time.sleep(0.1)


@pytest.mark.parametrize("base", [1, 2])
@given(n=st.integers(0, 5))
def test_both(base, n):
    assert n >= 0
