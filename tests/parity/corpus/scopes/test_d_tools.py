"""pytest's own fixtures, here and far away."""

import os
import sys

import pytest

gpu = pytest.mark.gpu
both = pytest.mark.parametrize("side", ["here", pytest.param("far", marks=gpu)])


@both
def test_tmp_path(side, tmp_path):
    (tmp_path / "file").write_text("x")
    print(tmp_path.name)
    assert os.listdir(tmp_path) == ["file"]


@gpu
def test_tmp_path_fails(tmp_path):
    assert tmp_path == "elsewhere"


@gpu
def test_tmp_path_factory(tmp_path_factory):
    assert tmp_path_factory.mktemp("made").name == "made0"
    assert tmp_path_factory.getbasetemp().is_dir()


@both
def test_monkeypatch(side, monkeypatch, tmp_path):
    monkeypatch.setenv("PARITY_SET", "1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["other"])
    monkeypatch.syspath_prepend(tmp_path)


@both
def test_monkeypatch_undone(side):
    assert "PARITY_SET" not in os.environ
    assert os.path.exists("pytest.ini")
    assert sys.argv != ["other"]


@gpu
def test_leaves_a_mess():
    os.environ["PARITY_MESS"] = "1"
    os.chdir("/")
    sys.path.insert(0, "/nowhere")


@gpu
def test_sees_the_mess(pytestconfig):
    assert os.getcwd() == "/"
    os.chdir(pytestconfig.invocation_params.dir)
    assert os.environ["PARITY_MESS"] == "1"


@gpu
def test_cache(cache):
    cache.set("parity/value", [1, 2])
    assert cache.get("parity/value", None) == [1, 2]


@gpu
def test_stdin_is_empty():
    with pytest.raises(OSError, match="reading from stdin"):
        sys.stdin.read()


@gpu
def test_nested(pytester):
    pytester.makepyfile("def test_in(): pass\ndef test_out(): assert 0")
    result = pytester.runpytest_inprocess("-qq", "--tb=no", "-p", "no:hypothesispytest")
    result.assert_outcomes(passed=1, failed=1)


@gpu
def test_doctest_namespace(doctest_namespace):
    assert doctest_namespace == {}
