"""Files whose tests run far away are collected there: this side imports neither them nor torch."""

from __future__ import annotations

import os
import sys
from xml.etree import ElementTree as ET

import pytest

from session.running import CPU, run, said

FAR = (CPU,)  # it is the default
HERE = ("-o", "remotegpu_collect=here")
GUARD = """
    import os, sys

    class Guard:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("test_far", "test_more", "only_there", "torch"):
                raise RuntimeError(f"{name} is imported here")
            return None

    if "REMOTEGPU_WORKER" not in os.environ:
        sys.meta_path.insert(0, Guard())

    def pytest_sessionfinish(session):
        if "REMOTEGPU_WORKER" not in os.environ:
            print("LOADED", sorted({"test_far", "only_there", "torch"} & set(sys.modules)))
"""
TESTS = """
    import unittest
    import pytest
    import only_there

    @pytest.fixture(scope="module", params=["x", "y"])
    def thing(request):
        return request.param

    @pytest.mark.gpu
    class TestFirst:
        @pytest.mark.slow
        @pytest.mark.parametrize("n", [1, pytest.param(object(), id="odd one")])
        def test_n(self, n, thing):
            assert only_there.VALUE

        class TestInner:
            def test_fails(self, thing):
                assert 1 == 2, "as it should"

    @pytest.mark.gpu
    class Old(unittest.TestCase):
        def test_old(self):
            self.assertTrue(only_there.VALUE)

    @pytest.mark.gpu
    def test_last(thing): pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """Give a project whose far tests can't be imported here."""
    pytester.makeini("[pytest]\nmarkers = slow\n")
    pytester.makeconftest(GUARD)
    pytester.makepyfile(
        test_far=TESTS, test_plain="def test_here(): pass", only_there="VALUE = True"
    )
    return pytester


def ids(result: pytest.RunResult) -> list[str]:
    """Give the ids that ``--collect-only -q`` lists."""
    return [line for line in result.stdout.lines if "::" in line and " " not in line.split("[")[0]]


def test_nothing_of_them_is_imported_here(project: pytest.Pytester) -> None:
    result = run(project, *FAR, "--junitxml=far.xml", "-v")
    text = said(result)
    result.assert_outcomes(passed=8, failed=2)
    assert "LOADED []" in text
    assert "test_far.py::TestFirst::TestInner::test_fails[x] FAILED" in text
    assert "AssertionError: as it should" in text
    cases = [
        (case.get("classname"), case.get("name"))
        for case in ET.parse("far.xml").iter("testcase")  # noqa: S314 -- our own file
    ]
    assert ("test_far.TestFirst.TestInner", "test_fails[y]") in cases
    assert ("test_far.Old", "test_old") in cases


def test_selection_works_on_them(project: pytest.Pytester) -> None:
    """The tree is that of plain pytest, and each option selects the same tests of it."""
    plain = project.runpytest_subprocess("--co", "-v", "-p", "no:cacheprovider", "--noconftest")
    far = run(project, *FAR, "--co", "-v", "-p", "no:cacheprovider")
    trees = [
        [line for line in result.stdout.lines if line.lstrip().startswith("<")]
        for result in (plain, far)
    ]
    assert trees[0] == trees[1]
    for options in (
        ["-k", "TestInner or old"],
        ["-m", "slow"],
        ["test_far.py::TestFirst::test_n[x-odd one]", "test_far.py::Old"],
        ["--deselect=test_far.py::TestFirst", "-k", "not here"],
    ):
        quiet = ("--co", "-q", *options)
        one = ids(project.runpytest_subprocess("--noconftest", *quiet))
        assert one, options
        assert ids(run(project, *FAR, *quiet)) == one, options


def test_failed_ones_first(project: pytest.Pytester) -> None:
    run(project, *FAR).assert_outcomes(passed=8, failed=2)
    last = run(project, *FAR, "--lf", "-v")
    last.assert_outcomes(failed=2)
    last.stdout.fnmatch_lines(["run-last-failure: rerun previous 2 failures"])


def test_one_import_serves_collection_and_run(pytester: pytest.Pytester) -> None:
    """One shape, one process; a second shape costs a process and an import of its own."""
    pytester.makepyfile(
        test_far="""
            import os, pathlib
            import pytest

            with open("imports", "a") as file:
                print(os.getpid(), file=file)

            @pytest.mark.gpu
            def test_a(): pass

            @pytest.mark.gpu
            def test_b(): pass
        """
    )
    run(pytester, *FAR).assert_outcomes(passed=2)
    imports = (pytester.path / "imports").read_text().split()
    assert len(imports) == 1


def test_what_is_not_marked_runs_here(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_far="""
            import os
            import pytest

            def where(): return "there" if "REMOTEGPU_WORKER" in os.environ else "here"

            @pytest.mark.gpu
            def test_there(): assert where() == "there"

            @pytest.mark.parametrize("n", [1, 2])
            def test_here(n): assert where() == "here"

            class TestBoth:
                def test_here(self): assert where() == "here"
                @pytest.mark.gpu(2)
                def test_there(self): assert where() == "there"
        """
    )
    result = run(pytester, *FAR, "-v")
    result.assert_outcomes(passed=5)
    assert "2 tests on" not in said(result)


def test_what_is_not_marked_and_cannot_be_imported_here_fails(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_more="""
            import only_there
            import pytest

            @pytest.mark.gpu
            def test_there(): pass

            def test_here(): pass
        """
    )
    result = run(project, *FAR, "test_more.py")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "this test has no gpu mark, so it runs here; its file was collected on the far side*",
            "*is imported here*",
            "mark it, or ship all tests with --remote-all",
        ]
    )
    run(project, *FAR, "test_more.py", "--remote-all").assert_outcomes(passed=2)


def test_errors_and_skips_are_those_of_plain_pytest(pytester: pytest.Pytester) -> None:
    """Each as a report of collection, with the same exit status; the rest is not run either."""
    pytester.makepyfile(
        test_broken="import pytest\nimport not_there\n@pytest.mark.gpu\ndef test(): pass",
        test_raises="import pytest\n@pytest.mark.gpu\ndef test(): pass\nraise ValueError('hm')",
        test_skipped=(
            "import pytest\npytest.skip('not today', allow_module_level=True)\n"
            "@pytest.mark.gpu\ndef test(): pass"
        ),
        test_good="import pytest\n@pytest.mark.gpu\ndef test(): pass",
    )
    options = ("-rA", "-p", "no:cacheprovider")
    plain, far = pytester.runpytest_subprocess(*options), run(pytester, *FAR, *options)
    assert far.ret == plain.ret == pytest.ExitCode.INTERRUPTED
    for result in (plain, far):
        result.assert_outcomes(errors=2, skipped=1)

    def told(result: pytest.RunResult) -> list[str]:
        lines = result.stdout.lines
        kept = lines[next(i for i, line in enumerate(lines) if "ERRORS" in line) : -1]
        return [line for line in kept if "remote" not in line]

    assert told(far) == told(plain)
    run(pytester, *FAR, "--continue-on-collection-errors").assert_outcomes(
        errors=2, skipped=1, passed=1
    )


def test_a_file_that_fails_here_only_is_collected_there(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mark can't be seen in the source; broken files without one stay this side's errors."""
    pytester.makepyfile(
        test_unclear="""
            import os
            assert "REMOTEGPU_WORKER" in os.environ
            import marks_of_a_library as library

            @library.needs
            def test_there(): pass
        """,
        test_skips_here="""
            import os, pytest
            import marks_of_a_library as library
            if "REMOTEGPU_WORKER" not in os.environ:
                pytest.skip("no card", allow_module_level=True)

            @library.needs
            def test_there(): pass
        """,
    )
    library = pytester.mkdir("lib")
    (library / "marks_of_a_library.py").write_text("import pytest\nneeds = pytest.mark.gpu\n")
    pytester.makeini("[pytest]\n")
    monkeypatch.setenv("PYTHONPATH", str(library))
    run(pytester, *FAR).assert_outcomes(passed=2)
    pytester.makepyfile(test_broken="import not_there")
    run(pytester, *FAR).assert_outcomes(errors=1)


def test_named_files_are_collected_there(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest
        def pytest_collection_modifyitems(items):
            for item in items:
                if "far" in item.path.name:
                    assert "thing" in item.fixturenames
                    item.add_marker(pytest.mark.gpu)
    """)
    pytester.makepyfile(
        test_far="""
            import os, pytest
            assert "REMOTEGPU_WORKER" in os.environ

            @pytest.fixture
            def thing(): pass

            def test_a(thing): pass
        """
    )
    run(pytester, *FAR, "-o", "remotegpu_files=test_f*.py").assert_outcomes(passed=1)


@pytest.mark.parametrize("more", [(), ("-n1",)], ids=str)
@pytest.mark.parametrize(
    "hook", ["pytest_collection_modifyitems(items)", "pytest_itemcollected(item)"]
)
def test_a_hook_that_needs_an_object_is_told_so(
    pytester: pytest.Pytester, hook: str, more: tuple[str, ...]
) -> None:
    if more:
        pytest.importorskip("xdist")
    pytester.makeconftest(f"""
        import os

        def {hook}:
            for each in {"items" if "items" in hook else "[item]"}:
                print("DOC", each.obj.__doc__)
    """)
    pytester.makepyfile(test_far="import pytest\n@pytest.mark.gpu\ndef test(): pass")
    result = run(pytester, *FAR, *more)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = said(result)
    assert f"conftest.py:5: {hook.partition('(')[0]} asks for it" in text
    assert "no 'obj': test_far.py::test was collected on the far side" in text
    assert "remotegpu_collect = here" in text
    run(pytester, *FAR, *HERE, *more).assert_outcomes(passed=1)


def test_what_is_gone_there_is_an_error(pytester: pytest.Pytester) -> None:
    """A second process of the far side has fewer tests than the first: each one lost is said."""
    pytester.makepyfile(
        test_far="""
            import pathlib
            import pytest

            again = pathlib.Path("seen").exists()
            pathlib.Path("seen").touch()

            @pytest.mark.gpu
            def test_a(): pass

            if not again:
                @pytest.mark.gpu(2)
                def test_gone(): pass
        """
    )
    result = run(pytester, *FAR)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*the far side has no test 'test_far.py::test_gone'*"])


def test_a_value_that_is_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_far="import pytest\n@pytest.mark.gpu\ndef test(): pass")
    result = run(pytester, CPU, "-o", "remotegpu_collect=there")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "'there' is neither here nor far" in said(result)


def test_a_file_that_ends_its_process_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_far="import os, pytest\n@pytest.mark.gpu\ndef test(): pass\nos._exit(3)",
        test_good="import pytest\n@pytest.mark.gpu\ndef test(): pass",
    )
    result = run(pytester, *FAR, "--continue-on-collection-errors")
    assert result.ret != 0
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["*ERROR collecting test_far.py*"])


def test_files_are_sent_and_several_workers_run_them(project: pytest.Pytester) -> None:
    """Where nothing of the project lies on the far side, and two workers share the tests."""
    there = "--remote=command:env -u PYTHONPATH PYTEST_REMOTEGPU_PRETEND_GPUS=2"
    python = f"remotegpu_python={sys.executable}"
    options = (there, "-o", "remotegpu_collect=far", "-o", python, "--remote-workers=2")
    result = run(project, *options)
    result.assert_outcomes(passed=8, failed=2)
    assert "LOADED []" in said(result)
    project.makepyfile(test_more="import pytest\nimport nothing\n@pytest.mark.gpu\ndef test(): 1")
    broken = run(project, *options, "test_more.py")
    broken.assert_outcomes(errors=1)
    assert f"'{project.path}/test_more.py'" in said(broken)
    assert broken.ret == pytest.ExitCode.INTERRUPTED


def test_doctests_are_collected_there_too(project: pytest.Pytester) -> None:
    """A file may have several collectors: each has its own tree."""
    project.makepyfile(
        test_more='''
            """
            >>> only_there.VALUE
            True
            """
            import only_there
            import pytest

            def add(a, b):
                """
                >>> add(2, 2)
                5
                """
                return a + b

            @pytest.mark.gpu
            def test_there(): pass
        '''
    )
    result = run(project, *FAR, "--doctest-modules", "--remote-all", "-v", "test_more.py")
    result.assert_outcomes(passed=2, failed=1)
    text = said(result)
    assert "test_more.py::test_more PASSED" in text
    assert "test_more.py::test_more.add FAILED" in text
    assert "LOADED []" in text


def test_without_a_far_side_the_option_does_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_far="import os, pytest\n@pytest.mark.gpu\ndef test(): pass\n"
        "def test_here(): assert 'REMOTEGPU_WORKER' not in os.environ"
    )
    run(pytester, "-o", "remotegpu_collect=far").assert_outcomes(passed=1, skipped=1)


def test_all_files_are_collected_there_where_all_tests_are_shipped(
    pytester: pytest.Pytester,
) -> None:
    """One process imports those with and without marks, and this side none."""
    only_there = "import os\nassert 'REMOTEGPU_WORKER' in os.environ\n"
    noted = "with open('imports', 'a') as file: print(os.getpid(), file=file)\n"
    marked = "import pytest\n@pytest.mark.gpu\ndef test_far(): pass\n"
    pytester.makepyfile(
        test_far=only_there + noted + marked, test_plain=only_there + noted + "def test_too(): 1"
    )
    result = run(pytester, *FAR, "--remote-all")
    result.assert_outcomes(passed=2)
    imports = (pytester.path / "imports").read_text().split()
    assert len(imports) == 2
    assert len(set(imports)) == 1
    assert "1 worker   2 tests" in said(result)


def test_names_of_packages_are_followed(pytester: pytest.Pytester) -> None:
    """The package is not imported here, nor is what is above its tests."""
    pytester.makeini("[pytest]\npythonpath = src\n")
    package = pytester.mkdir("src") / "far_package"
    (package / "tests").mkdir(parents=True)
    only_there = "import os\nassert 'REMOTEGPU_WORKER' in os.environ\n"
    (package / "__init__.py").write_text("")
    (package / "tests" / "__init__.py").write_text("")
    text = only_there + "import pytest\n@pytest.mark.gpu\ndef test(): pass\n"
    (package / "tests" / "test_it.py").write_text(text)
    for name in ("far_package.tests", "far_package.tests.test_it"):
        run(pytester, *FAR, "--pyargs", name).assert_outcomes(passed=1)


FRESH = """
    import json
    import os
    import pathlib
    import pytest
    import helper

    if "REMOTEGPU_WORKER" not in os.environ:
        raise ImportError("not here")

    CASES = json.loads(pathlib.Path(__file__).with_name("cases.json").read_text())
    LINES = pathlib.Path(__file__).with_name("lines.txt").read_text().split()

    @pytest.mark.gpu
    @pytest.mark.parametrize("value", helper.VALUES)
    def test_helper(value): assert value in helper.VALUES

    @pytest.mark.gpu
    @pytest.mark.parametrize("case", CASES)
    def test_case(case): assert case in CASES

    @pytest.mark.gpu
    @pytest.mark.parametrize("line", LINES)
    def test_line(line): assert line in LINES
"""


@pytest.mark.parametrize(
    ("name", "text", "gone", "come"),
    [
        ("helper.py", "VALUES = ['new']", "test_helper[old]", "test_helper[new]"),
        ("cases.json", '["new"]', "test_case[old]", "test_case[new]"),
        ("lines.txt", "new", "test_line[old]", "test_line[new]"),
    ],
)
def test_what_collection_reads_is_read_anew_each_time(
    pytester: pytest.Pytester, name: str, text: str, gone: str, come: str
) -> None:
    pytester.makepyfile(test_far=FRESH)
    files = {"helper.py": "VALUES = ['old']", "cases.json": '["old"]', "lines.txt": "old"}
    for file, content in files.items():
        (pytester.path / file).write_text(content, encoding="utf-8")
    listed = ids(run(pytester, *FAR, "--collect-only", "-q"))
    assert f"test_far.py::{gone}" in listed
    run(pytester, *FAR).assert_outcomes(passed=3)
    path = pytester.path / name
    path.write_text(text, encoding="utf-8")  # of the same length, and soon after
    listed = ids(run(pytester, *FAR, "--collect-only", "-q"))
    assert f"test_far.py::{gone}" not in listed
    assert f"test_far.py::{come}" in listed
    run(pytester, *FAR).assert_outcomes(passed=3)
    chosen = run(pytester, *FAR, f"test_far.py::{gone}")
    assert chosen.ret == pytest.ExitCode.USAGE_ERROR
    assert f"not found: {pytester.path / 'test_far.py'}::{gone.partition('[')[0]}" in said(chosen)


def test_the_number_of_devices_is_that_of_now(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        cards="import os\ndef device_count(): return int(os.environ['CARDS'])",
        test_far="""
            import cards
            import pytest

            @pytest.mark.gpu
            @pytest.mark.parametrize("device", range(cards.device_count()))
            def test_device(device): assert device < cards.device_count()
        """,
    )
    for count in ("1", "3", "2"):
        monkeypatch.setenv("CARDS", count)
        assert len(ids(run(pytester, *FAR, "--collect-only", "-q"))) == int(count)
        run(pytester, *FAR).assert_outcomes(passed=int(count))


def test_the_timeline_has_each_phase_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_far="import pytest\n@pytest.mark.gpu\ndef test(): pass")
    text = run(pytester, *FAR, "--remote-timeline").stdout.str()
    for phase in ("worker opened", "hello", "process", "collection there", "first test", "end"):
        assert text.count(f" s  {phase}\n") == 1, text


def test_who_collects_a_file_anew_while_tests_run_gets_what_it_gave(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest("""
        import pytest
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_protocol(item):
            found = item.getparent(pytest.File).collect()
            assert [each.name for each in found] == ["test_one", "test_two"]
            return (yield)
    """)
    pytester.makepyfile("""
        import pytest
        @pytest.mark.gpu
        def test_one(): pass
        @pytest.mark.gpu(2)
        def test_two(): pass
    """)
    run(pytester, CPU, "-o", "remotegpu_collect=far").assert_outcomes(passed=2)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
@pytest.mark.parametrize("more", [(), ("-o", "remotegpu_conftest=far"), HERE], ids=" ".join)
def test_a_name_that_is_not_utf_8(
    pytester: pytest.Pytester, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pytest itself can't write such a name into its cache."""
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8:backslashreplace")  # pytester reads UTF-8 only
    name = os.fsdecode(b"test_\xff.py")
    (pytester.path / name).write_text("import pytest\n@pytest.mark.gpu\ndef test_a(): pass\n")
    for arguments in ((), (name,)):
        result = run(pytester, CPU, "-p", "no:cacheprovider", *more, *arguments)
        result.assert_outcomes(passed=1)
    there = ("--remote=command:env PYTEST_REMOTEGPU_PRETEND_GPUS=1", "-p", "no:cacheprovider")
    result = run(pytester, *there, "-o", f"remotegpu_python={sys.executable}", *more)
    assert result.ret in (2, 4)
    why = "file or directory not found: " if more == HERE else "has a name, or links to one, that"
    assert why in said(result)
