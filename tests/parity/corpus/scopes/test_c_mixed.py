"""Local and far tests in turns, with quiet wide fixtures on both sides."""

import pytest

gpu = pytest.mark.gpu


@pytest.fixture(scope="module")
def quiet():
    return []


@gpu
def test_far_one(quiet):
    quiet.append("far")


def test_here_one(quiet, each):
    quiet.append("here")


@gpu
def test_far_two(quiet, request):
    assert "far" in quiet


def test_here_two(quiet):
    assert "here" in quiet


@gpu
@pytest.mark.note("hello")
@pytest.mark.usefixtures("quiet")
def test_request(request, pytestconfig):
    assert request.node.nodeid.endswith("test_c_mixed.py::test_request")
    assert [m.args for m in request.node.iter_markers("note")] == [("hello",)]
    assert request.function.__name__ == request.node.originalname
    assert request.module.__name__ == "test_c_mixed"
    assert request.path.name == "test_c_mixed.py"
    assert "quiet" in request.fixturenames
    assert request.getfixturevalue("quiet") is not None
    assert pytestconfig.getini("markers")
    assert pytestconfig.rootpath == request.path.parent


@gpu
def test_no_such_value(request):
    request.getfixturevalue("not_there")
