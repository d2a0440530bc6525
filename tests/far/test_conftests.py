"""Conftests that are loaded on the far side only: what they add, drop, order and register there."""

from __future__ import annotations

import sys

import pytest

from session.running import CPU, run, said

FAR = (CPU, "-o", "remotegpu_conftest=far")
CONFTEST = """
    import os
    import pytest

    if "REMOTEGPU_WORKER" not in os.environ:
        raise ImportError("this conftest needs what only the far side has")

    def pytest_addoption(parser):
        parser.addoption("--mode", default="slow")
        parser.addoption("--site", required=True)
        parser.addoption("--brief", action="store_true")
        parser.addini("answer", "an ini value", default="0")

    def pytest_configure(config):
        config.addinivalue_line("markers", "nightly(n): registered there")

    @pytest.fixture
    def mode(request):
        return request.config.getoption("--mode")

    def pytest_collection_modifyitems(config, items):
        for item in items:
            if "card" in item.name:
                item.add_marker(pytest.mark.gpu)
            if "night" in item.name:
                item.add_marker(pytest.mark.nightly(3))
                item.user_properties.append(("asked", "there"))
        dropped = [item for item in items if "dropped" in item.name]
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in reversed(items) if item not in dropped]
"""
TESTS = """
    import os

    def test_card(mode): assert mode == "fast"
    def test_night(): pass
    def test_dropped(): pass
    def test_ini(pytestconfig):
        assert pytestconfig.getini("answer") == "43"
        assert "REMOTEGPU_WORKER" in os.environ
"""
FAILING_CLASS = """
import pytest

class TestInner:
    @pytest.mark.parametrize("value", [1])
    def test_in(self): pass
"""
OPTIONS = ("--mode", "fast", "--site=lab", "-o", "answer=43", "--strict-markers")


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """Give a project whose conftest can't be loaded here."""
    pytester.makeini("[pytest]\n")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_it=TESTS)
    return pytester


def test_their_hooks_have_their_say_there(project: pytest.Pytester) -> None:
    """Their marks, order, properties, options and markers are those of this session, too."""
    result = run(project, *FAR, *OPTIONS, "-v", "--junitxml=out.xml")
    result.assert_outcomes(passed=3, deselected=1)
    ran = [line.split()[0] for line in result.stdout.lines if " PASSED" in line]
    assert ran == ["test_it.py::test_ini", "test_it.py::test_night", "test_it.py::test_card"]
    assert 'name="asked" value="there"' in (project.path / "out.xml").read_text()
    assert "warning" not in said(result).lower()
    for options, number in ((["-m", "nightly"], 1), (["-m", "gpu"], 1), (["-k", "ini or card"], 2)):
        run(project, *FAR, *OPTIONS, *options).assert_outcomes(passed=number, deselected=4 - number)


@pytest.mark.parametrize("names", [["card", "ini"], ["night"], ["ini", "night", "ini"]])
@pytest.mark.parametrize("first", [True, False])
def test_ids_choose_among_them(project: pytest.Pytester, names: list[str], *, first: bool) -> None:
    """Whether options that only that side knows stand before them or behind."""
    chosen = [f"test_it.py::test_{name}" for name in names]
    words = [*chosen, *OPTIONS] if first else [*OPTIONS, *chosen]
    run(project, *FAR, *words, "-v").assert_outcomes(passed=len(set(names)))


def test_all_processes_of_xdist_leave_them_alone(project: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    run(project, *FAR, *OPTIONS, "-n2").assert_outcomes(passed=3)


def test_without_the_option_the_error_names_it(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess(CPU, *OPTIONS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = result.stdout.str() + result.stderr.str()
    assert "this conftest needs what only the far side has" in text
    assert "with remotegpu_conftest = far conftests are loaded on the far side only" in text
    plain = project.runpytest_subprocess(*OPTIONS)
    assert "remotegpu_conftest" not in plain.stdout.str() + plain.stderr.str()


def test_without_a_far_side_they_are_loaded_here(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nremotegpu_conftest = far\n")
    pytester.makeconftest("import pytest\n@pytest.fixture\ndef value(): return 1")
    pytester.makepyfile("def test(value): assert value == 1")
    run(pytester).assert_outcomes(passed=1)
    result = run(pytester, CPU, "-o", "remotegpu_conftest=nowhere")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "remotegpu_conftest = 'nowhere' is neither here nor far" in said(result)


def test_one_that_fails_there(project: pytest.Pytester) -> None:
    """The root's ends the session; that of a folder is an error of collection, as plainly."""
    inner = project.mkdir("inner")
    (inner / "conftest.py").write_text("raise ValueError('inner')\n")
    (inner / "test_inner.py").write_text("def test_inner(): pass\n")
    result = run(project, *FAR, *OPTIONS, "--continue-on-collection-errors")
    result.assert_outcomes(passed=3, errors=1, deselected=1)
    assert "ValueError: inner" in said(result)
    project.makeconftest("raise ValueError('root')")
    result = run(project, *FAR, *OPTIONS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "ValueError: root" in said(result)


@pytest.mark.parametrize(
    ("source", "error", "place"),
    [
        ("raise ValueError('no luck')", "ValueError: no luck", "build/test_odd.py"),
        (FAILING_CLASS, "function uses no argument 'value'", "build/test_odd.py::TestInner"),
        ("def test(): pass", "this side did not come to that file", "build/test_odd.py"),
    ],
    ids=["fails", "class", "tests"],
)
def test_what_only_that_side_comes_to(
    pytester: pytest.Pytester, source: str, error: str, place: str
) -> None:
    """A hook there goes into a folder that this side leaves out: nothing of it goes missing."""
    pytester.makeconftest("""
        def pytest_ignore_collect(collection_path):
            return False if collection_path.name == "build" else None
    """)
    folder = pytester.mkdir("build")
    (folder / "test_odd.py").write_text(source)
    pytester.makepyfile("def test_plain(): pass")
    result = run(pytester, *FAR)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=1)
    assert error in said(result)
    assert f"ERROR {place}" in said(result)


@pytest.mark.parametrize(
    ("path", "others"),
    [("tesst", []), ("sub/tesst", ["test_it.py"]), ("test_itt.py", []), ("test_itt.py::test", [])],
)
def test_a_mistyped_path_is_no_value_of_an_option(
    project: pytest.Pytester, path: str, others: list[str]
) -> None:
    """Behind an option that has none: nothing runs, and the message is pytest's own."""
    result = run(project, *FAR, *others, "-o", "answer=43", "--mode=a", "--site=b", "--brief", path)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"file or directory not found: {path}" in said(result)
    result.assert_outcomes()


def test_values_of_all_kinds(project: pytest.Pytester) -> None:
    """A very long one, a URL, and one with white space in it are no paths, and no crash."""
    for value in ("x" * 5000, "http://lab/site", "a\tb"):
        words = ("--brief", "--site", value, "--mode", "fast", "-o", "answer=43", "test_it.py")
        run(project, *FAR, *words).assert_outcomes(passed=3, deselected=1)


def test_files_without_failures_are_no_missing_ones(pytester: pytest.Pytester) -> None:
    """With ``--lf`` pytest does not come to the tests of some."""
    pytester.makepyfile(test_bad="def test_bad(): assert 0", test_good="def test_good(): pass")
    run(pytester, *FAR).assert_outcomes(passed=1, failed=1)
    run(pytester, *FAR, "--lf").assert_outcomes(failed=1)


def test_an_option_that_nobody_knows(project: pytest.Pytester) -> None:
    result = run(project, *FAR, *OPTIONS, "--nobody-knows=this")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "unrecognized arguments: --nobody-knows=this" in said(result)


def test_files_of_other_kinds(pytester: pytest.Pytester) -> None:
    """A conftest there has a collector of its own; this side knows nothing of such files."""
    pytester.makeconftest("""
        import pytest

        class Lines(pytest.File):
            def collect(self):
                for number, line in enumerate(self.path.read_text().split()):
                    yield Line.from_parent(self, name=f"line {number}", word=line)

        class Line(pytest.Item):
            def __init__(self, *, word, **kwargs):
                super().__init__(**kwargs)
                self.word = word

            def runtest(self):
                assert self.word == "good"

        def pytest_collect_file(file_path, parent):
            if file_path.suffix == ".lines":
                return Lines.from_parent(parent, path=file_path)
    """)
    (pytester.path / "a.lines").write_text("good bad good")
    pytester.makepyfile("def test_here(): pass")
    plain = pytester.runpytest_subprocess("-v")
    result = run(pytester, *FAR, "-v")
    result.assert_outcomes(passed=3, failed=1)

    def ran(result: pytest.RunResult) -> list[str]:
        return [line for line in result.stdout.lines if "::" in line and "%]" in line]

    assert ran(result) == ran(plain)


def test_what_torch_in_a_conftest_costs_is_said_once(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import sys, time, types
        time.sleep(0.3)
        torch = sys.modules.setdefault("torch", types.ModuleType("torch"))
        sys.modules.pop("torch") if "REMOTEGPU_WORKER" in __import__("os").environ else None
    """)
    pytester.makepyfile("import pytest\n@pytest.mark.gpu\ndef test(): pass")
    text = said(run(pytester, CPU, "-v"))
    assert text.count("conftest.py imports torch here: 0.") == 1, text
    assert "imports torch" not in said(run(pytester, CPU))
    assert "imports torch" not in said(run(pytester, "-v"))


def test_files_that_travel(project: pytest.Pytester) -> None:
    """With a far side that has no file of the project."""
    there = "--remote=command:env -u PYTHONPATH PYTEST_REMOTEGPU_PRETEND_GPUS=2"
    options = ("-o", "remotegpu_conftest=far", "-o", f"remotegpu_python={sys.executable}")
    run(project, there, *options, *OPTIONS).assert_outcomes(passed=3, deselected=1)


INI_FILES = {
    "pytest.ini": "[pytest]\nanswer = 43\n",
    "tox.ini": "[pytest]\nanswer: 43\n",
    "setup.cfg": "[tool:pytest]\nanswer = 43\n",
    "pyproject.toml": "[tool.pytest.ini_options]\nanswer = '43'\n",
}


@pytest.mark.parametrize("name", INI_FILES)
def test_their_ini_options_are_no_unknown_ones(pytester: pytest.Pytester, name: str) -> None:
    """Wherever they stand, an option that only a conftest registers is not warned of here."""
    (pytester.path / name).write_text(INI_FILES[name])
    pytester.makeconftest("def pytest_addoption(parser): parser.addini('answer', 'a number')")
    pytester.makepyfile("def test(pytestconfig): assert pytestconfig.getini('answer') == '43'")
    result = run(pytester, *FAR, "-W", "error")
    result.assert_outcomes(passed=1)
    assert "Unknown config option" not in said(result)


def test_a_file_that_git_ignores_is_no_missing_one(pytester: pytest.Pytester) -> None:
    """The far side has not got it, so nobody would miss its tests."""
    there = "--remote=command:env -u PYTHONPATH PYTEST_REMOTEGPU_PRETEND_GPUS=2"
    options = (there, *FAR[1:], "-o", f"remotegpu_python={sys.executable}")
    pytester.run("git", "init", "-q", ".")
    (pytester.path / ".gitignore").write_text("test_made.py\n")
    pytester.makepyfile(test_made="def test_one(): pass", test_kept="def test_two(): pass")
    pytester.makeconftest("")
    result = run(pytester, *options)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=1)
    text = said(result)
    assert "'test_made.py' was not sent: git ignores it; to send it, add 'test_made.py' to" in text
    assert "or leave it out: --ignore=test_made.py" in text
    run(pytester, *options, "--ignore=test_made.py").assert_outcomes(passed=1)
    run(pytester, *options, "-o", "remotegpu_include=test_made.py").assert_outcomes(passed=2)


WIDTHS = """
    import argparse

    def pytest_addoption(parser):
        group = parser.getgroup("ours")
        group.addoption("--data", type=str, default="none")
        group.addoption("--quick", "--quicker", action="store_true")
        group.addoption("--pair", nargs=2)
        group.addoption("--fine", action=argparse.BooleanOptionalAction)
        for name in ("--hid", "--den"):
            group.addoption(name, default="none")
"""


@pytest.mark.parametrize(
    ("arguments", "data"),
    [
        (["--data", "./data"], "./data"),
        (["--data", "data/values.json"], "data/values.json"),
        (["--quick", "checks", "--data", "./data"], "./data"),
        (["--data=./data", "--quicker", "checks/test_it.py::test_one"], "./data"),
        (["--pair", "data", "none-such", "--fine", "checks"], "none"),
        (["checks", "--hid", "x"], "none"),
        (["--hid=data", "checks"], "none"),
    ],
    ids=" ".join,
)
def test_a_value_that_is_a_path_as_well(
    pytester: pytest.Pytester, arguments: list[str], data: str
) -> None:
    """The source of the conftest says which options have a value."""
    pytester.makeconftest(WIDTHS)
    (pytester.mkdir("data") / "values.json").touch()
    (pytester.mkdir("checks") / "test_it.py").write_text(
        f"def test_one(pytestconfig): assert pytestconfig.getoption('data') == {data!r}\n"
    )
    run(pytester, *FAR, *arguments).assert_outcomes(passed=1)


def test_where_nobody_knows_whether_it_is_a_value(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(WIDTHS)
    pytester.mkdir("data")
    pytester.makepyfile("def test_one(): pass")
    result = run(pytester, *FAR, "--hid", "data")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = said(result)
    assert "nobody knows here whether 'data' is the value of --hid or is to be collected" in text
    assert "write --hid=data, or the path before --hid" in text


def test_a_text_of_doctests_is_no_module(pytester: pytest.Pytester) -> None:
    """It is a file of pytest's that has no object, between those that have one."""
    pytester.makeconftest("")
    pytester.maketxtfile(test_text=">>> 1 + 1\n2\n")
    pytester.makepyfile(test_a="def test(): pass", test_z="def test(): pass")
    run(pytester, *FAR, "--remote-all").assert_outcomes(passed=3)
