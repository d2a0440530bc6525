"""Skips and expected failures of every kind, here and far away."""

import sys

import pytest

gpu = pytest.mark.gpu
both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=gpu)])


@both
@pytest.mark.skip(reason="by mark")
def test_mark(side):
    pass


@gpu
@pytest.mark.skip
def test_mark_without_reason():
    pass


@both
@pytest.mark.skipif(sys.version_info > (3,), reason="by condition")
def test_condition(side):
    pass


@gpu
@pytest.mark.skipif("sys.platform != 'vms'", reason="by text")
def test_condition_text():
    pass


@gpu
@pytest.mark.skipif("no_such_name", reason="broken condition")
def test_condition_broken():
    pass


@gpu
@pytest.mark.skipif(False, reason="not used")
def test_condition_false():
    pass


@both
def test_body(side):
    pytest.skip(f"in the body, {side}")


@gpu
def test_import():
    pytest.importorskip("no_such_module_anywhere")


@gpu
def test_import_version():
    pytest.importorskip("pytest", minversion="999")


@gpu
def test_inside_helper():
    def helper():
        pytest.skip("from a helper\nof two lines")

    helper()


@both
@pytest.mark.xfail
def test_xfail(side):
    assert side == 1


@both
@pytest.mark.xfail(reason="should pass one day")
def test_xpass(side):
    pass


@both
@pytest.mark.xfail(strict=True, reason="strictly")
def test_strict(side):
    pass


@gpu
@pytest.mark.xfail(sys.platform == "vms", reason="elsewhere only")
def test_xfail_condition_false():
    assert 0


@gpu
@pytest.mark.xfail("True", reason="text condition")
def test_xfail_condition_text():
    assert 0


@gpu
@pytest.mark.xfail(raises=ValueError, reason="this kind")
def test_xfail_raises():
    raise ValueError("x")


@gpu
@pytest.mark.xfail(raises=(ValueError, KeyError))
def test_xfail_raises_other():
    raise TypeError("y")


@gpu
@pytest.mark.xfail(run=False, reason="would crash")
def test_xfail_not_run():
    raise SystemExit(1)


@both
def test_xfail_in_body(side):
    pytest.xfail("decided late")


@gpu
@pytest.mark.skip(reason="whole class")
class TestSkipped:
    def test_a(self):
        pass

    def test_b(self):
        pass


@gpu
def test_adds_xfail(request):
    request.applymarker(pytest.mark.xfail(reason="added while running"))
    assert 0
