"""``-n N`` together with ``--remote``: each process ships its tests, and one session is shown.

What such a session should come to is what the same one comes to without ``-n``, or what its local
tests see. pytest-xdist starts real processes here, so the sessions are few and hold much.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from session.running import CPU, run, said

pytest.importorskip("xdist")

SECTION = r"^=+ {} =+$"
COLLECTS_HERE = ("-o", "remotegpu_collect=here")
CLOSING = 15.0
"""Seconds for which the end of a worker is waited for."""

MIXED = {
    "test_a": """
        import os
        import warnings

        import pytest

        class Odd(UserWarning):
            pass

        @pytest.fixture(scope="module")
        def part():
            yield 1

        def test_here(part):
            print("said here")

        @pytest.mark.gpu
        @pytest.mark.parametrize("n", range(4))
        def test_many(n, part, record_property):
            record_property("n", n)
            warnings.warn(f"odd {n}", Odd)
            warnings.warn(f"plain {n}", UserWarning)

        @pytest.mark.gpu
        def test_fails(artifacts_dir):
            (artifacts_dir / "left.txt").write_text("left")
            print("said there")
            assert 1 == 2

        @pytest.mark.gpu(2)
        def test_crashes(): os._exit(3)

        @pytest.mark.gpu
        def test_skips(): pytest.skip("not today")

        @pytest.mark.gpu
        @pytest.mark.xfail(reason="known")
        def test_xfails(): raise ValueError

        @pytest.mark.gpu
        def test_xml(record_xml_attribute):
            record_xml_attribute("seen", "yes")
    """,
    "test_b": """
        import pytest

        @pytest.fixture
        def bad_end():
            yield
            raise RuntimeError("a bad end")

        @pytest.fixture
        def bad_start(): raise RuntimeError("a bad start")

        @pytest.mark.gpu
        def test_bad_end(bad_end): pass

        @pytest.mark.gpu
        def test_bad_start(bad_start): pass

        @pytest.mark.gpu
        class TestOdd:
            @pytest.mark.parametrize("text", ["a b", "c::d", "ü"])
            def test_odd_ids(self, text): pass

        def test_artifact_here(artifacts_dir):
            (artifacts_dir / "too.txt").write_text("too")
    """,
    "test_skipped_file": """
        import os
        import pytest

        if "REMOTEGPU_WORKER" in os.environ:
            pytest.skip("not there", allow_module_level=True)

        @pytest.mark.gpu
        def test_never(): raise SystemExit("it ran")
    """,
}


def cases(path: Path) -> dict[str, list[str]]:
    """Read from a junit file what became of each test; workers' names and times are left out."""
    found = {}
    for case in ET.parse(path).getroot().iter("testcase"):  # noqa: S314 -- our own session wrote it
        parts = [
            f"{part.tag} {part.get('message', '')}" for part in case if part.tag != "properties"
        ]
        parts += [
            f"{one.get('name')}={one.get('value')}"
            for one in case.iter("property")
            if one.get("name") != "remotegpu_worker"
        ]
        found[f"{case.get('classname')}::{case.get('name')}"] = sorted(parts)
    return found


def last_line(result: pytest.RunResult) -> str:
    """Give the numbers at the end of a session, without its time."""
    return re.sub(r" in [\d.]+s.*", "", result.outlines[-1]).strip("= ")


def test_a_session_comes_to_what_it_comes_to_without_processes(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\njunit_family = xunit1\n")
    pytester.makepyfile(**MIXED)
    alone = run(pytester, CPU, "-rA", "--junitxml=alone.xml", "--remote-artifacts=alone")
    both = run(
        pytester, CPU, "-n2", "-rA", "--junitxml=both.xml", "--remote-artifacts=kept",
        "--remote-timeline", "--remote-debug",
    )  # fmt: skip
    assert both.ret == alone.ret == pytest.ExitCode.TESTS_FAILED
    assert last_line(both) == last_line(alone)
    text = said(both)
    here, there = cases(pytester.path / "alone.xml"), cases(pytester.path / "both.xml")
    assert len(here) == 17
    folder = ("remotegpu_artifacts=kept/", "remotegpu_artifacts=alone/")
    assert {id: [text.replace(*folder) for text in case] for id, case in there.items()} == here
    for result in (alone, both):
        assert "Odd: odd 3" in said(result)
        assert "UserWarning: plain 3" in said(result)
        assert "said there" in said(result)
    assert text.count("remote: local:cpu") == 1
    assert len(re.findall(SECTION.format("remote summary"), text, re.MULTILINE)) == 1
    assert re.search(r"^1 GPU   [12] workers?   1[23] tests", text, re.MULTILINE)
    assert "artifacts: 2 in " in text
    kept = sorted(path.name for path in pytester.path.joinpath("kept").rglob("*.txt"))
    assert kept == ["left.txt", "too.txt"]
    timeline = text.partition("remote timeline")[2]
    assert re.search(r"^gw0 .* collection here$", timeline, re.MULTILINE)
    assert re.search(r"^local-gw[01]-\d .* first test$", timeline, re.MULTILINE)
    assert re.search(r"^remote debug: \[gw[01]\] \+", text, re.MULTILINE)


SEEN = """
    import os
    import sys
    from pathlib import Path

    import pytest

    LOCAL = "REMOTEGPU_WORKER" not in os.environ

    @pytest.fixture(scope="session")
    def shared(tmp_path_factory):
        with open("made.txt", "a") as file:
            print(os.environ.get("REMOTEGPU_WORKER", "here"), file=file)
        return tmp_path_factory.getbasetemp().parent

    def look(name, shared, tmp_path, worker_id, testrun_uid, request):
        workerinput = dict(request.config.workerinput)
        workerinput.pop("remotegpu", None)
        seen = (
            worker_id, testrun_uid, shared, workerinput, sys.argv, Path.cwd(),
            tmp_path.parent.name.startswith(f"popen-{worker_id}"),
            {k: v for k, v in os.environ.items() if k.startswith("PYTEST_XDIST")},
            request.config.option.numprocesses, request.config.option.dist,
        )
        (tmp_path / "mine").touch(exist_ok=False)
        Path(f"seen-{worker_id}-{name}.txt").write_text(repr(seen))

    @pytest.mark.parametrize("n", range(3))
    def test_here(n, shared, tmp_path, worker_id, testrun_uid, request):
        assert LOCAL
        look(f"here{n}", shared, tmp_path, worker_id, testrun_uid, request)

    @pytest.mark.gpu
    @pytest.mark.parametrize("n", range(3))
    def test_there(n, shared, tmp_path, worker_id, testrun_uid, request):
        assert not LOCAL
        look(f"there{n}", shared, tmp_path, worker_id, testrun_uid, request)

    @pytest.mark.gpu(2)
    def test_two(shared, tmp_path, worker_id, testrun_uid, request):
        assert not LOCAL
        look("two", shared, tmp_path, worker_id, testrun_uid, request)
"""


def test_a_shipped_test_sees_what_a_local_one_of_its_process_sees(
    pytester: pytest.Pytester,
) -> None:
    """Under ``each`` every process runs every test, so each has both sides."""
    pytester.makepyfile(SEEN)
    result = run(pytester, CPU, "--dist=each", "--tx=2*popen", "-v")
    result.assert_outcomes(passed=14)
    found = {path.stem: path.read_text() for path in pytester.path.glob("seen-*.txt")}
    assert len(found) == 14
    for worker in ("gw0", "gw1"):
        seen = {text for name, text in found.items() if name.startswith(f"seen-{worker}-")}
        assert len(seen) == 1, "\n".join(sorted(seen))
        assert f"'PYTEST_XDIST_WORKER': '{worker}'" in seen.pop()
    made = pytester.path.joinpath("made.txt").read_text().split()
    assert sorted(made) == [  # the first of each process has collected
        "here", "here", "local-gw0-2", "local-gw0-3", "local-gw1-2", "local-gw1-3",
    ]  # fmt: skip


GROUPS = """
    import pytest

    @pytest.fixture(scope="module")
    def part():
        yield 1

    def test_first(part): pass

    @pytest.mark.gpu
    @pytest.mark.xdist_group("g")
    @pytest.mark.parametrize("n", range(3))
    def test_there(n, part): pass

    @pytest.mark.xdist_group("g")
    def test_last(part): pass
"""


@pytest.mark.parametrize("dist", ["loadscope", "loadfile", "loadgroup", "worksteal"])
def test_each_way_of_distributing_works(dist: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a=GROUPS, test_b=GROUPS, test_c=GROUPS)
    result = run(pytester, CPU, "-n2", f"--dist={dist}")
    result.assert_outcomes(passed=15)
    assert result.ret == 0
    assert "9 tests" in said(result)


@pytest.mark.parametrize("args", [["-n0"], ["--dist=no", "--tx=popen"]])
def test_no_processes_are_none(args: list[str], pytester: pytest.Pytester) -> None:
    pytester.makepyfile(GROUPS)
    result = run(pytester, CPU, *args)
    result.assert_outcomes(passed=5)
    assert "remote: 3 tests on 1 GPU, 2 here" in said(result)


def test_local_fixtures_are_torn_down_between_shipped_tests(pytester: pytest.Pytester) -> None:
    """What fails then is an error, of the last test that could have needed the fixture."""
    text = """
        import pytest

        @pytest.fixture(scope="module")
        def part():
            yield 1
            {}

        def test_before(part): pass

        @pytest.mark.gpu
        def test_there(): pass
    """
    pytester.makepyfile(
        test_a=text.format("raise ValueError('the end of a')"),
        test_b=text.format("pass"),
        test_c="def test_here(): pass",
    )
    result = run(pytester, CPU, "-n1")
    result.assert_outcomes(passed=5, errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "ERROR at teardown of test_there" in said(result)
    assert "ValueError: the end of a" in said(result)


def far_only(text: str) -> str:
    """Make a conftest whose text is run on the far side only."""
    return f"import os\nif 'REMOTEGPU_WORKER' in os.environ:\n    {text}\n"


TWO_FILES = {
    "test_a": "import pytest\n@pytest.mark.gpu\ndef test_there(): pass\n",
    "test_b": "import pytest\n@pytest.mark.gpu\ndef test_too(): pass\n",
}


@pytest.mark.parametrize(
    ("files", "args", "says"),
    [
        ({}, ["-n2", "--remote=nowhere"], "nowhere"),
        ({}, ["-n2", "--remote-plan"], "leave out -n"),
        (
            {},
            ["--tx=ssh=example.org//python=python3", "--dist=load"],
            "only processes of this",
        ),
        ({}, ["-n2", "-f"], "--looponfail"),
        ({}, ["-n2", "--remote-timeout=soon"], "--remote-timeout = 'soon'"),
        (
            {"test_c": "import pytest\n@pytest.mark.gpu(cuont=2)\ndef test(): pass\n"},
            ["-n2"],
            "cuont",
        ),
        ({"conftest": far_only("raise RuntimeError('only there')")}, ["-n2"], "only there"),
        (
            {},
            ["-n2", "--remote=command:env", "-o", "remotegpu_python=/no/python"],
            "can't serve this",
        ),
    ],
    ids=["spec", "plan", "tx", "looponfail", "setting", "mark", "far conftest", "no worker there"],
)
def test_what_cannot_be_meant_is_a_usage_error(
    files: dict[str, str], args: list[str], says: str, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(**TWO_FILES, **files)
    result = run(pytester, CPU, *args)
    text = said(result)
    assert result.ret == pytest.ExitCode.USAGE_ERROR, text
    assert "ERROR: " in result.stderr.str()
    assert says in text
    assert "passed" not in text


def test_a_refusal_after_a_test_has_run_is_an_error_of_collection(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        conftest=far_only("raise RuntimeError('only there')"),
        test_a="def test_here(): pass",
        test_b="import pytest\n@pytest.mark.gpu\ndef test_there(): pass\n",
    )
    result = run(pytester, "-n1", CPU, *COLLECTS_HERE)
    text = said(result)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "1 error during far collection" in text
    assert "RuntimeError: only there" in text
    assert "ERROR at setup of test_there" in text
    assert "cause: " in text
    result = run(pytester, "-n1", CPU)  # who collects there loads that conftest before any test
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "RuntimeError: only there" in said(result)


@pytest.mark.parametrize("collects", [(), COLLECTS_HERE], ids=["far", "here"])
def test_a_file_that_fails_only_there(pytester: pytest.Pytester, collects: tuple[str, ...]) -> None:
    """As one that fails here: pytest-xdist runs the others; one of its processes gets none."""
    pytester.makepyfile(
        test_a=far_only("raise RuntimeError('only there')") + TWO_FILES["test_a"],
        test_b=TWO_FILES["test_b"],
    )
    result = run(pytester, "-n2", CPU, *collects)
    text = said(result)
    far = not collects
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if far else pytest.ExitCode.INTERRUPTED)
    assert ("1 error during far collection" in text) == (not far)
    told = text.partition("short test summary info")[0]  # where CI is set, it says all again
    assert told.count("E   RuntimeError: only there") == 1
    assert re.search("1 passed, 1 error in" if far else "1 passed, 2 errors in", text)
    assert result.duration < CLOSING, "it waited for a worker that no process needed"


def test_the_first_failure_ends_the_session(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu
        @pytest.mark.parametrize("n", range(40))
        def test_there(n): assert n
    """)
    result = run(pytester, "-n2", CPU, "-x")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] == 1
    assert outcomes.get("passed", 0) < 39
    assert "stopping after 1 failures" in said(result)


def test_a_failure_at_the_end_of_a_far_session_is_no_green(pytester: pytest.Pytester) -> None:
    """The fixture is kept for a test that another process gets; no report is open at its end."""
    pytester.makeconftest("""
        import pytest

        spoilt = []

        @pytest.fixture(scope="session")
        def whole():
            yield spoilt
            if spoilt:
                raise ValueError("the end of it all")
    """)
    pytester.makepyfile(
        test_a="""
            import pytest

            @pytest.mark.gpu
            def test_one(whole): whole.append(1)

            def test_here(): pass
        """,
        test_b="""
            import pytest

            @pytest.mark.gpu
            def test_two(whole): assert not whole

            def test_here(): pass
        """,
    )
    result = run(pytester, "-n2", "--dist=loadfile", CPU)
    text = said(result)
    result.assert_outcomes(passed=4)
    assert result.ret != pytest.ExitCode.OK
    assert re.search(r"cause: the session on local-gw[01]-1 failed at its end", text)
    assert "ValueError: the end of it all" in text


def test_the_last_test_tears_down_what_is_left(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.fixture(scope="session")
        def whole():
            yield
            raise ValueError("the end of it all")

        @pytest.mark.gpu
        def test_one(whole): pass

        @pytest.mark.gpu
        def test_two(whole): pass
    """)
    result = run(pytester, "-n1", CPU)
    result.assert_outcomes(passed=2, errors=1)
    assert "ERROR at teardown of test_two" in said(result)


def test_a_gpu_is_counted_where_the_session_ends(pytester: pytest.Pytester) -> None:
    """The reports that reach the user's process say it; here a conftest speaks for a far side."""
    pytester.makeconftest("""
        import os
        import pytest

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_logreport(report):
            if os.environ.get("PYTEST_XDIST_WORKER") and os.environ.get("COUNTS"):
                report.remotegpu_marked = True
    """)
    pytester.makepyfile("def test_here(): pass")
    args = ("-n1", "--remote=command:env", "--gpu-required")
    result = run(pytester, *args)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "--gpu-required: no test with the gpu mark ran on a GPU" in said(result)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COUNTS", "1")
        assert run(pytester, *args).ret == pytest.ExitCode.OK


def test_what_pytest_xdist_cannot_carry_ends_no_session(pytester: pytest.Pytester) -> None:
    """By itself it dies of each of these."""
    pytester.makepyfile("""
        import pathlib
        import warnings
        import pytest

        class Odd(UserWarning): pass

        @pytest.mark.gpu
        def test_text(): raise ValueError("odd \\ud800 text")

        @pytest.mark.gpu
        def test_warning(): warnings.warn("odd \\ud801 warning", Odd)

        def test_here(record_property):
            record_property("where", pathlib.Path("here"))
            record_property("set", {"odd \\ud802 part"})
    """)
    result = run(pytester, CPU, "-n1", "--junitxml=j.xml")
    result.assert_outcomes(passed=2, failed=1, warnings=1)
    assert r"ValueError: odd \ud800 text" in said(result)
    assert r"Odd: odd \ud801 warning" in said(result)
    written = pytester.path.joinpath("j.xml").read_text()
    assert 'name="where" value="here"' in written
    assert "ud802 part" in written
