"""What tests write, as a user sees it: live under ``-s`` and ``log_cli``, in files, in junit."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from .running import CPU, Started, run, said

TALK = """
    import sys
    import time
    import pytest

    @pytest.mark.gpu
    def test_talk():
        print("line one")
        print("line two", file=sys.stderr)
        time.sleep(1.0)
        print("line three")

    @pytest.mark.gpu
    def test_bar():
        for step in range(6):
            sys.stdout.write(f"\\rstep {step}/5")
            sys.stdout.flush()
            time.sleep(0.25)
        print()

    @pytest.mark.gpu
    def test_no_newline():
        print("no newline", end="")
"""


def test_output_is_live_and_whole_under_s(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TALK)
    with Started(pytester, CPU, "-s", "-v") as session:
        assert session.end() == pytest.ExitCode.OK
        text = session.text
        assert session.at("line three") - session.at("line one") > 0.7
        assert session.at("line three") - session.at("line two") > 0.7
        assert session.at("step 5/5") - session.at("step 1/5") > 0.7
    assert {"line one", "line two", "line three"} <= set(text.splitlines())
    assert text.count("line one") == 1
    steps = "".join(f"\rstep {step}/5" for step in range(6))
    order = ["line three", "::test_talk PASSED", steps, "::test_bar PASSED", "no newline"]
    places = [text.find(part) for part in [*order, "::test_no_newline PASSED"]]
    assert -1 not in places
    assert places == sorted(places)


def test_two_workers_never_share_a_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys
        import time
        import pytest

        def talk(name):
            for n in range(40):
                sys.stdout.write(f"{name} part one ")
                sys.stdout.flush()
                time.sleep(0.01)
                sys.stdout.write(f"{name} part two" + ("\\n" if n % 2 else "\\r"))
                sys.stdout.flush()
            print(f"{name} unfinished", end="")

        @pytest.mark.gpu
        def test_one(): talk("AAA")

        @pytest.mark.gpu
        def test_two(): talk("AAA")

        @pytest.mark.gpu(2)
        def test_three(): talk("BBB")

        @pytest.mark.gpu(2)
        def test_four(): talk("BBB")
    """)
    with Started(pytester, "--remote=local:cpu:3", "-s", "-v") as session:
        assert session.end() == pytest.ExitCode.OK
        text = session.text
    mixed = [line for line in text.split("\n") if "AAA" in line and "BBB" in line]
    assert mixed == []
    for name in ("AAA", "BBB"):
        assert text.count(f"{name} part one ") == text.count(f"{name} part two") == 80
    named = [line for line in re.split("[\r\n]", text) if re.search(r"(PASSED|RUNNING)", line)]
    assert [line for line in named if "AAA" in line or "BBB" in line] == []


def test_captured_output_is_shown_for_failures_only(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys
        import pytest

        pytestmark = pytest.mark.gpu

        def test_fine(): print("said in passing")

        def test_fails():
            sys.stdout.write("\\r1/2\\r2/2\\b\\n")
            print("to stderr", file=sys.stderr)
            assert False
    """)
    result = pytester.runpytest_inprocess(CPU)
    text = said(result)
    assert "said in passing" not in text
    assert "Captured stdout call" in text
    assert "Captured stderr call" in text
    shown = text.partition("Captured stdout call")[2]
    assert re.match(r"[ -]+\n\s*1/2\s*2/2\x08\n-+ Captured stderr call -+\nto stderr\n", shown)
    section = pytester.runpytest_inprocess(CPU, "-rP", "-k", "fine")
    assert "said in passing" in said(section)


@pytest.mark.parametrize("capture", ["tee-sys", "sys"])
def test_other_ways_to_capture(capture: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_fails():
            print("written once")
            assert False
    """)
    result = run(pytester, CPU, f"--capture={capture}")
    result.assert_outcomes(failed=1)
    live, _, shown = said(result).partition("Captured stdout call")
    assert ("\nwritten once" in live.partition("print(")[0]) is (capture == "tee-sys")
    assert shown.count("written once") == 1


LOGS = """
    import logging
    import time
    import pytest

    log = logging.getLogger("app")

    @pytest.mark.gpu
    def test_log():
        log.info("epoch 1 done")
        log.debug("too small to tell")
        time.sleep(1.0)
        log.warning("epoch %d done", 2)

    def test_here():
        log.info("said here")
"""


def test_records_come_live_and_go_to_the_log_file(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nlog_cli = true\nlog_cli_level = INFO\n")
    pytester.makepyfile(LOGS)
    with Started(pytester, CPU, "--log-file=session.log", "--log-file-level=INFO") as session:
        assert session.end() == pytest.ExitCode.OK
        assert session.at("epoch 2 done") - session.at("epoch 1 done") > 0.7
        text = session.text
    assert text.count("epoch 1 done") == 1
    assert "too small" not in text
    lines = pytester.path.joinpath("session.log").read_text().splitlines()
    assert [line for line in lines if "epoch 1 done" in line and "local-1" in line]
    assert [line for line in lines if "epoch 2 done" in line and "local-1" in line]
    assert [line for line in lines if "said here" in line and "local-1" not in line]
    assert not [line for line in lines if "too small" in line]


def test_captured_records_are_a_section_as_ever(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import logging
        import pytest

        @pytest.mark.gpu
        def test_fails(caplog):
            logging.getLogger("app").warning("before the end")
            assert caplog.messages == ["before the end"]
            assert False
    """)
    text = said(pytester.runpytest_inprocess(CPU))
    assert re.search(r"Captured log call -+\nWARNING +app:test_\w+\.py:6 before the end", text)


def test_junit_is_valid_and_tells_where_tests_ran(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_control(record_property):
            record_property("odd", "a\\x00b\\ud800c")
            print("\\x1b[31mred\\x1b[0m \\x00\\x08 \\ud800".encode("utf8", "replace").decode())
            assert "\\x01" == "\\x02"

        @pytest.mark.gpu(2)
        def test_two(record_xml_attribute): pass

        def test_here(): pass
    """)
    result = pytester.runpytest_inprocess(
        CPU, "--junitxml=j.xml", "-p", "no:warnings", "-o", "junit_logging=all"
    )
    result.assert_outcomes(passed=2, failed=1)
    suite = ET.parse(pytester.path / "j.xml").getroot()[0]  # noqa: S314  our own file
    assert suite.attrib["tests"] == "3"
    cases = {case.attrib["name"]: case for case in suite.iter("testcase")}
    properties = {
        name: {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
        for name, case in cases.items()
    }
    ours = ("remotegpu_backend", "remotegpu_gpu", "remotegpu_worker")
    assert [properties["test_two"].get(name) for name in ours] == [
        "local:cpu",
        "2 GPUs (pretend)",
        "local-3",  # the first has collected, since the file asks for different GPUs
    ]
    assert [properties["test_control"].get(name) for name in ours] == [
        "local:cpu",
        "1 GPU (pretend)",
        "local-2",
    ]
    assert properties["test_here"] == {}
    assert "red" in "".join(cases["test_control"].itertext())
    assert all(len(case.findall("properties")) <= 1 for case in cases.values())


def test_fixtures_of_the_junit_file_warn_of_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.fixture(scope="session")
        def wide(record_testsuite_property):
            record_testsuite_property("wide", 2)

        @pytest.mark.gpu
        def test_it(record_testsuite_property, record_property, wide):
            record_testsuite_property("narrow", 1)
            record_property("own", 3)
    """)
    args = ["--junitxml=out.xml", "-o", "junit_family=xunit1", "-W", "error"]
    result = pytester.runpytest_inprocess(CPU, *args)
    result.assert_outcomes(passed=1)
    found = {
        one.get("name"): one.get("value")
        for one in ET.parse(pytester.path / "out.xml").iter("property")  # noqa: S314 -- our own
    }
    assert {"wide": "2", "narrow": "1", "own": "3"}.items() <= found.items()


@pytest.mark.parametrize("capture", ["fd", "sys"])
def test_what_is_written_past_the_capture_is_shown(capture: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os
        import sys
        import pytest

        @pytest.mark.gpu
        @pytest.mark.parametrize("name", ["capsys", "capfd"])
        def test_talks(name, request):
            print("caught")
            with request.getfixturevalue(name).disabled():
                print(f"seen {name}")
                print("seen on stderr", file=sys.stderr)
                os.write(1, b"seen raw\\n")
            print("caught again")

        @pytest.mark.gpu
        def test_after(): pass
    """)
    result = pytester.runpytest_subprocess(CPU, f"--capture={capture}", "-v", timeout=40)
    result.assert_outcomes(passed=3)
    text = said(result)
    assert "caught" not in text
    lines = result.stdout.lines
    for line in ("seen capsys", "seen capfd"):
        assert lines.count(line) == 1
    assert lines.count("seen raw") == 2
    assert result.stderr.lines.count("seen on stderr") == 2
    assert text.index("seen capsys") < text.index("test_talks[capsys] PASSED")
    assert text.index("test_talks[capsys] PASSED") < text.index("seen capfd")


@pytest.mark.parametrize("when", ["in it", "after it"])
def test_a_crash_near_what_is_written_past_the_capture(
    when: str, pytester: pytest.Pytester
) -> None:
    """What was last written is shown with the crash."""
    inside, after = ("die()", "") if when == "in it" else ("", "die()")
    pytester.makepyfile(f"""
        import os, signal, sys
        import pytest

        def die():
            os.kill(os.getpid(), signal.SIGKILL)

        @pytest.mark.gpu
        def test_talks(capsys):
            with capsys.disabled():
                print("said in it", flush=True)
                {inside}
            os.write(1, b"said after it\\n")
            {after}
    """)
    result = pytester.runpytest_subprocess(CPU, timeout=40)
    result.assert_outcomes(failed=1)
    text = said(result)
    assert text.count(f"said {when}") == 1
    assert text.index("SIGKILL") < text.index(f"said {when}")


def test_live_logs_are_written_once(pytester: pytest.Pytester) -> None:
    """Pytest disables its capture for each of them too; that is not a test's doing."""
    pytester.makeini("[pytest]\nlog_cli = true\n")
    pytester.makepyfile("""
        import logging
        import pytest

        @pytest.mark.gpu
        def test_talks(capsys):
            logging.warning("heard")
            with capsys.disabled():
                print("seen")
                logging.warning("heard within")
    """)
    result = pytester.runpytest_subprocess(CPU, timeout=40)
    result.assert_outcomes(passed=1)
    text = said(result)
    assert [text.count(words) for words in ("] heard\n", "] heard within\n")] == [1, 1]
    assert result.stdout.lines.count("seen") == 1
