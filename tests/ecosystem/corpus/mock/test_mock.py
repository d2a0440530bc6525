import os

import pytest


def test_patch(mocker):
    mocker.patch("os.getcwd", return_value="/nowhere")
    assert os.getcwd() == "/nowhere"


def test_is_undone():
    assert os.getcwd() != "/nowhere"


def test_wrong_call(mocker):
    called = mocker.patch("os.getcwd")
    called(1)
    called.assert_called_once_with(2, key={"a": [1, 2, 3]})


def test_spy(mocker):
    spied = mocker.spy(os.path, "join")
    os.path.join("a", "b")
    assert spied.spy_return == "a/b"


def test_session(session_mocker):
    session_mocker.patch("os.uname", return_value="that")


def test_still():
    assert os.uname() == "that"


@pytest.mark.parametrize("n", [1, 2])
def test_stub(mocker, n):
    stub = mocker.stub(name="it")
    stub(n)
    stub.assert_called_once_with(1)
