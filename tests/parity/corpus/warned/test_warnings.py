"""Warnings of every kind and origin."""

import threading
import warnings

import pytest
from kinds import CodeWarning, TakesKeywords, TwoArguments, call_old

gpu = pytest.mark.gpu
both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=gpu)])

warnings.warn("while this file is imported", UserWarning, stacklevel=1)


@both
def test_user(side):
    warnings.warn("plain words", UserWarning, stacklevel=1)


@both
@pytest.mark.parametrize("n", range(3))
def test_same_again(side, n):
    warnings.warn("the same words", DeprecationWarning, stacklevel=1)


@gpu
def test_kinds():
    for kind in (PendingDeprecationWarning, SyntaxWarning, ImportWarning, BytesWarning):
        warnings.warn(kind.__name__, kind, stacklevel=1)


@both
def test_with_state(side):
    warnings.warn(CodeWarning(42), stacklevel=1)


@gpu
def test_other_constructors():
    warnings.warn(TwoArguments("this", "that"), stacklevel=1)
    warnings.warn(TakesKeywords(reason="ümlaut \ud83d\nsecond line"), stacklevel=1)


@gpu
def test_local_class():
    class Inner(UserWarning):
        pass

    warnings.warn("of a local class", Inner, stacklevel=1)


@both
def test_stacklevel(side):
    call_old()


@gpu
def test_explicit():
    warnings.warn_explicit("elsewhere", UserWarning, "generated.py", 77)


@both
def test_around(side, warns_around):
    pass


@both
def test_hook_warns(side):
    pass


@gpu
def test_node_warn(request):
    request.node.warn(pytest.PytestWarning("from the node"))


@both
def test_error_by_ini(side):
    warnings.warn("the future", FutureWarning, stacklevel=1)


@gpu
def test_ignored():
    warnings.warn("not interesting at all", UserWarning, stacklevel=1)


@gpu
@pytest.mark.filterwarnings("error:strictly")
def test_error_by_mark():
    warnings.warn("strictly forbidden", UserWarning, stacklevel=1)


@gpu
@pytest.mark.filterwarnings("ignore")
def test_ignored_by_mark():
    warnings.warn("strictly forbidden", UserWarning, stacklevel=1)


@gpu
def test_caught():
    with pytest.warns(UserWarning, match="inside"):
        warnings.warn("inside", UserWarning, stacklevel=1)


@gpu
def test_not_raised():
    with pytest.warns(UserWarning):
        pass


@gpu
def test_recwarn(recwarn):
    warnings.warn("recorded", UserWarning, stacklevel=1)
    assert len(recwarn) == 1


@gpu
def test_deprecated_call():
    with pytest.deprecated_call():
        call_old()


@gpu
def test_thread():
    def boom():
        raise ValueError("in a thread")

    thread = threading.Thread(target=boom, name="boomer")
    thread.start()
    thread.join()


@gpu
def test_unraisable():
    class Bad:
        def __del__(self):
            raise ValueError("in __del__")

    Bad()


@gpu
def test_many():
    for n in range(50):
        warnings.warn(f"number {n}", UserWarning, stacklevel=1)


@pytest.mark.unheard_of
@gpu
def test_unknown_mark():
    pass
