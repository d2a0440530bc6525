"""What becomes of files and tests of the far side where something is wrong: none goes missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import Far
from pytest_remotegpu.errors import FarSideError
from session.running import CPU, run, said
from stage import HERE, Stage

FAR = (CPU, "-o", "remotegpu_collect=far")
ARGS = ("-o", "remotegpu_collect=far")
ONE = "import pytest\n@pytest.mark.gpu\ndef test(): pass\n"


def test_a_file_that_only_the_far_side_leaves_out(pytester: pytest.Pytester) -> None:
    """This side has it, so it is collected and run."""
    pytester.makeconftest("""
        import os
        collect_ignore = ["test_left.py"] if "REMOTEGPU_WORKER" in os.environ else []
    """)
    pytester.makepyfile(test_left=ONE, test_good=ONE)
    run(pytester, *FAR).assert_outcomes(passed=2)


def test_a_file_whose_collector_only_the_far_side_takes_away(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import os, pytest

        @pytest.hookimpl(wrapper=True)
        def pytest_collect_file(file_path):
            found = yield
            away = "REMOTEGPU_WORKER" in os.environ and "left" in file_path.name
            return [] if away else found
    """)
    pytester.makepyfile(test_left=ONE, test_good=ONE)
    result = run(pytester, *FAR)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "no match in any of" in said(result)
    assert "test_left.py" in said(result)


def test_an_id_that_is_not_there_is_said_as_plainly(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_far=ONE)
    lines = []
    for options in ((), FAR):
        result = run(pytester, *options, "test_far.py::test_other")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        lines.append(
            [line for line in result.stderr.lines if "ERROR" in line or "no match" in line]
        )
    assert lines[0] == lines[1] != []


def test_a_test_that_is_gone_when_its_process_begins(pytester: pytest.Pytester) -> None:
    """The error shows the nearest ones, and how its id differs; others of its file run."""
    pytester.makepyfile(
        test_far="""
            import pathlib
            import pytest

            seen = pathlib.Path("seen")
            seen.touch()
            with seen.open("a") as file:
                file.write("x")
            first = seen.stat().st_size == 1

            @pytest.mark.gpu
            def test_stays(): pass

            @pytest.mark.gpu(2)
            @pytest.mark.parametrize("n", ["alpha", "beta"] if first else ["alpha"])
            def test_some(n): pass
        """
    )
    result = run(pytester, *FAR, "-rA")
    result.assert_outcomes(passed=2, errors=1)
    text = said(result)
    assert "the far side has no test 'test_far.py::test_some[beta]'" in text
    assert "here its function has 2 calls, there 1; the nearest there:" in text
    assert "- test_far.py::test_some[beta]" in text
    assert "+ test_far.py::test_some[alpha]" in text
    assert "or were never on your side" in text
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("option", ["--collect-only", "--continue-on-collection-errors", "-q"])
def test_warnings_of_a_session_that_runs_none_of_the_tests(
    pytester: pytest.Pytester, option: str
) -> None:
    """Pytest gives them when all has been collected: nobody has gone by then."""
    pytester.makepyfile(
        test_far="""
            import warnings
            import pytest

            warnings.warn("said at import")

            @pytest.mark.gpu
            def test_one(): pass
        """,
        test_pair="""
            import warnings
            import pytest

            warnings.warn("said by the other")

            @pytest.mark.gpu(2)
            def test_two(): pass
        """,
    )
    if option == "-q":
        pytester.makepyfile(test_lacks="import missing\nimport pytest\npytest.mark.gpu\n")
    more = ("-k", "test_one") if option.startswith("--continue") else ()
    text = said(run(pytester, *FAR, option, *more))
    assert "UserWarning: said at import" in text, text
    assert "UserWarning: said by the other" in text, text


def test_more_tests_than_there_were(pytester: pytest.Pytester) -> None:
    """Those that a later process has, and the first had not, are not selected, and don't run."""
    pytester.makepyfile(
        test_far="""
            import pathlib
            import pytest

            seen = pathlib.Path("seen").exists()
            pathlib.Path("seen").touch()

            @pytest.mark.gpu
            def test_one(): pass

            @pytest.mark.gpu(2)
            @pytest.mark.parametrize("n", [2, 1] if seen else [1])
            def test_two(n): assert n == 1
        """
    )
    run(pytester, *FAR).assert_outcomes(passed=2)


def test_no_machine_is_an_error_of_each_file(stage: Stage) -> None:
    """Tests here that need none run, where the session goes on after such errors."""
    (stage.path / "test_more.py").write_text(ONE)
    gone = FarSideError("no machine is left")
    played = stage.run(gone, args=(*ARGS, "--continue-on-collection-errors"))
    assert played.text.count("no machine is left") >= 2, played.text
    assert played.verdicts(HERE) == ["passed"] * 2
    assert played.ret == pytest.ExitCode.TESTS_FAILED
    assert stage.run(gone, args=ARGS).ret == pytest.ExitCode.INTERRUPTED


def test_a_worker_that_is_lost_meanwhile_is_replaced_once(stage: Stage) -> None:
    def lost(far: Far) -> None:
        far.greet()

    played = stage.run(lost, lost, args=ARGS)
    assert played.workers == 2
    assert played.ret == pytest.ExitCode.INTERRUPTED, played.text
    assert "did not collect test_far.py" in played.text
    assert Path(stage.path).is_dir()
