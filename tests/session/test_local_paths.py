"""Errors name files of this side, whoever writes their text; only what a test prints stays."""

from __future__ import annotations

import sys

import pytest

from .running import run, said

FAR = "--remote=command:env PYTEST_REMOTEGPU_PRETEND_GPUS=1"
CONFTEST = """
    import traceback, pytest

    class File(pytest.File):
        def collect(self):
            yield Own.from_parent(self, name="own")

    class Own(pytest.Item):
        def runtest(self):
            raise ValueError("own")

        def repr_failure(self, excinfo):
            return "as it says:\\n" + "".join(traceback.format_exception(excinfo.value))

    def pytest_collect_file(file_path, parent):
        if file_path.suffix == ".own":
            return File.from_parent(parent, path=file_path)
"""
TESTS = '''
    import threading, pytest

    def bottom():
        raise KeyError("bottom")

    def caught():
        try:
            bottom()
        except KeyError as error:
            return error

    def test_group():
        raise ExceptionGroup("outer", [caught(), ExceptionGroup("inner", [caught()])])

    def test_group_from():
        raise ExceptionGroup("outer", [caught()]) from caught()

    def test_from():
        raise ValueError("above") from ExceptionGroup("below", [caught()])

    @pytest.fixture
    def whole():
        yield
        raise ExceptionGroup("down", [caught()])

    def test_teardown(whole): pass

    @pytest.mark.filterwarnings("error")
    def test_thread():
        thread = threading.Thread(target=bottom)
        thread.start()
        thread.join()

    def documented():
        """
        >>> bottom()
        1
        """
'''


@pytest.mark.parametrize("style", ["auto", "native", "short"])
def test_files_of_this_side(pytester: pytest.Pytester, style: str) -> None:
    pytester.makeconftest(CONFTEST)
    path = pytester.makepyfile(test_it=TESTS)
    (pytester.path / "some.own").touch()
    result = run(
        *(pytester, FAR, "-o", f"remotegpu_python={sys.executable}", "--remote-all"),
        *("--doctest-modules", f"--tb={style}", "test_it.py", "some.own"),
    )
    result.assert_outcomes(passed=1, failed=6, errors=1)
    text = said(result)
    assert f'File "{path}", line ' in text
    assert text.count("in caught") >= 6
    assert "pytest-remotegpu/trees" not in text
