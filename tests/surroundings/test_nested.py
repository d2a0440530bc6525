"""Tests that run pytest themselves: with pytester, by pytest.main, in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from .both import FAR, alike, session

TESTS = '''
    import os, subprocess, sys
    import pytest

    INNER = """
        import pytest
        def test_ok(): print("inner")
        def test_bad(): assert 0
        @pytest.mark.gpu
        def test_card(): pass
    """

    class Seen:
        def __init__(self):
            self.ids = []

        def pytest_runtest_logreport(self, report):
            if report.when == "call":
                self.ids.append(report.nodeid.rpartition("::")[2])

    def test_in_process(pytester):
        pytester.makepyfile(INNER)
        pytester.runpytest("-rA").assert_outcomes(passed=1, failed=1, skipped=1)

    def test_in_a_process(pytester):
        pytester.makepyfile(INNER)
        result = pytester.runpytest_subprocess("-v")
        result.assert_outcomes(passed=1, failed=1, skipped=1)
        result.stdout.fnmatch_lines(["*::test_bad FAILED*"])

    def test_inline(pytester):
        pytester.makepyfile(INNER)
        pytester.inline_run().assertoutcome(passed=1, failed=1, skipped=1)

    def test_items(pytester):
        names = [item.name for item in pytester.getitems(INNER)]
        assert names == ["test_ok", "test_bad", "test_card"]

    def test_that_fails(pytester):
        pytester.makepyfile(INNER)
        pytester.runpytest().assert_outcomes(passed=3)

    @pytest.mark.parametrize("n", [1, 2])
    def test_main(tmp_path, n):
        inner = tmp_path / f"test_inner_{n}.py"
        inner.write_text("def test_ok(): pass\\ndef test_bad(): assert 0\\n")
        seen = Seen()
        assert pytest.main([str(tmp_path), "-q", "-p", "no:cacheprovider"], plugins=[seen]) == 1
        assert seen.ids == ["test_ok", "test_bad"]

    def test_own_process(tmp_path):
        (tmp_path / "test_inner.py").write_text("def test_ok(): pass\\n")
        command = [sys.executable, "-m", "pytest", "-q", "--junitxml=inner.xml"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (tmp_path / "inner.xml").exists()

    def test_after(request):
        assert os.environ["PYTEST_CURRENT_TEST"] == f"{request.node.nodeid} (call)"
'''


def test_sessions_inside_of_tests(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("pytest_plugins = 'pytester'")
    pytester.makepyfile(test_nested=TESTS)
    found = alike(pytester.path)
    assert found.counts == {"passed": 8, "failed": 1}


THING = """
    import pytest

    def pytest_addoption(parser):
        parser.addoption("--thing", default="none")
        parser.addini("thing", "of this plugin", default="of nobody")

    def pytest_configure(config):
        config.addinivalue_line("markers", "thing(name): is a thing")

    @pytest.fixture
    def thing(request):
        return request.config.getoption("--thing"), request.config.getini("thing")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(item):
        item.thing = "called"
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(item, call):
        report = yield
        if call.when == "call" and "turned" in item.keywords and report.failed:
            report.outcome, report.wasxfail = "skipped", "turned by the thing"
        return report
"""
OF_THING = """
    import pytest

    def test_option(thing):
        assert thing == ("red", "blue")

    def test_hook(request):
        assert request.node.thing == "called"

    @pytest.mark.thing("name")
    def test_turned():
        assert 0

    test_turned.turned = True

    def test_inside(pytester):
        pytester.makepyfile("def test_in(thing): assert thing == ('red', 'of nobody')")
        pytester.runpytest(NAMED"--thing=red").assert_outcomes(passed=1)
"""
METADATA = "Metadata-Version: 2.1\nName: pytest-thing\nVersion: 1.0\n"


def of_a_plugin(pytester: pytest.Pytester, *, entry: bool) -> Path:
    """Make a project that is a pytest plugin, in a folder ``src``, and tests of it."""
    pytester.makepyfile(**{"src/pytest_thing/__init__": "", "src/pytest_thing/plugin": THING})
    if entry:
        meta = pytester.mkdir("src/pytest_thing-1.0.dist-info")
        meta.joinpath("METADATA").write_text(METADATA)
        meta.joinpath("entry_points.txt").write_text("[pytest11]\nthing = pytest_thing.plugin\n")
    named = "" if entry else '"-p", "pytest_thing.plugin", '
    pytester.makepyfile(**{"tests/test_thing": OF_THING.replace("NAMED", named)})
    pytester.makeini("[pytest]\nthing = blue\naddopts = --strict-markers -p pytester\n")
    return pytester.path


@pytest.mark.parametrize("collect", ["far", "here"])
def test_a_project_that_is_a_plugin(pytester: pytest.Pytester, collect: str) -> None:
    """It is found by its entry point, in the project's own folder, on both sides."""
    folder = of_a_plugin(pytester, entry=True)
    words = ("--thing=red", "-o", f"remotegpu_collect={collect}", "tests")
    found = alike(folder, *words, environ={"PYTHONPATH": str(folder / "src")})
    assert found.counts == {"passed": 3, "xfailed": 1}


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (("-p", "pytest_thing.plugin", "--thing=red", "tests"), {}),
        (("tests", "--thing", "red", "-ppytest_thing.plugin"), {}),
        (("--thing=red", "tests"), {"PYTEST_PLUGINS": "pytest_thing.plugin"}),
        (("tests",), {"PYTEST_ADDOPTS": "--thing=red -p pytest_thing.plugin"}),
        (("-o", "addopts=-p pytester -p pytest_thing.plugin --thing=red"), {}),
        (
            ("-p", "pytest_thing.plugin", "--thing=red", "-p", "remotegpu", "tests"),
            {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        ),
        (
            (
                *("--disable-plugin-autoload", "-p", "pytest_thing.plugin", "--thing=red"),
                *("-p", "pytest_remotegpu.plugin", "tests"),
            ),
            {},
        ),
    ],
    ids=["-p", "glued", "PYTEST_PLUGINS", "PYTEST_ADDOPTS", "addopts", "no autoload", "by module"],
)
def test_a_plugin_that_is_named(
    pytester: pytest.Pytester, words: tuple[str, ...], environ: dict[str, str]
) -> None:
    folder = of_a_plugin(pytester, entry=False)
    found = alike(folder, *words, environ={"PYTHONPATH": str(folder / "src"), **environ})
    assert found.counts == {"passed": 3, "xfailed": 1}


def test_a_session_of_a_shipped_test_ships_nothing(pytester: pytest.Pytester) -> None:
    """Whatever it is told; and what it says is not to do what has been done."""
    pytester.makeconftest("pytest_plugins = 'pytester'")
    pytester.makepyfile("""
        import pytest

        @pytest.mark.parametrize("how", ["runpytest_inprocess", "runpytest_subprocess"])
        def test_inner(pytester, how):
            pytester.makepyfile("import pytest\\n@pytest.mark.gpu\\ndef test_card(): pass")
            result = getattr(pytester, how)("--remote=local:cpu", "-rs")
            result.assert_outcomes(skipped=1)
            assert "pytest --remote=SPEC runs" not in result.stdout.str()
            result.stdout.fnmatch_lines(["*a session within a shipped test ships nothing*"])
    """)
    found, said = session(pytester.path, *FAR)
    assert found.counts == {"passed": 2}, said
