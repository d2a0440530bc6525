"""Odd command lines: what stands in files, in variables, before and after, and what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from .both import FAR, alike, session

CONFTEST = """
    import pytest

    def pytest_addoption(parser):
        parser.addoption("--many", nargs="+", default=[])
        parser.addoption("--flag", action="store_true")
        parser.addini("words", "some", type="args", default=[])

    @pytest.fixture
    def said(request):
        option = request.config.option
        return option.many, option.flag, request.config.getini("words")
"""
TESTS = """
    import logging
    import warnings
    import pytest

    def test_said(said, capsys):
        with capsys.disabled():
            pass
        assert said == EXPECTED

    def test_warns():
        warnings.warn("once", UserWarning)

    def test_logs(tmp_path_factory):
        logging.getLogger().warning("said")
        assert tmp_path_factory.mktemp("x").is_dir()

    @pytest.mark.parametrize("n", range(3))
    def test_params(n):
        assert n != 1
"""
INNER = """
    import pytest

    class TestInner:
        @pytest.fixture(autouse=True)
        def value(self):
            self.value = 1

        def test_one(self):
            assert self.value == 1

        def test_skipped(self):
            pytest.skip("of course")
"""


def project(pytester: pytest.Pytester, expected: object = ([], False, [])) -> Path:
    """Make a project with options of its own."""
    folder = pytester.mkdir("project")
    for path, text in (
        ("conftest.py", CONFTEST),
        ("tests/test_outer.py", TESTS.replace("EXPECTED", repr(expected))),
        ("tests/inner/test_inner.py", INNER),
        ("other.toml", '[tool.pytest.ini_options]\nwords = ["a", "b"]\naddopts = "--flag"\n'),
        ("pytest.ini", "[pytest]\n"),
        ("words.txt", "--flag\n-p\nno:logging\ntests\n"),
    ):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        lines = (line.removeprefix("    ") for line in text.splitlines())
        place.write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--many", "x", "y", "--flag", "--", "tests"), (["x", "y"], True, [])),
        (("tests", "--many", "x", "y", "--flag"), (["x", "y"], True, [])),
        (("--many=x", "tests/inner", "tests/test_outer.py"), (["x"], False, [])),
        (("-c", "other.toml"), ([], True, ["a", "b"])),
        (("-c", "other.toml", "-o", "words=c 'd e'", "-o", "addopts="), ([], False, ["c", "d e"])),
        (("--rootdir=tests", "-c", "other.toml", "tests"), ([], True, ["a", "b"])),
        (("@words.txt",), ([], True, [])),
        (
            (
                "-p",
                "no:tmpdir",
                "-p",
                "no:unittest",
                "--deselect",
                "tests/test_outer.py::test_logs",
            ),
            None,
        ),
        (
            ("-p", "no:warnings", "-p", "no:logging", "-p", "no:faulthandler", "-p", "no:doctest"),
            None,
        ),
        (
            (
                "-p",
                "no:setuponly",
                "-p",
                "no:setupplan",
                "-p",
                "no:python_path",
                "-p",
                "no:stepwise",
            ),
            None,
        ),
        (("-p", "no:terminal", "tests/inner"), None),
        (("-p", "no:capture", "-p", "no:debugging", "-p", "no:recwarn", "tests/inner"), None),
        (
            ("-p", "no:assertion", "-p", "no:skipping", "-k", "not skipped", "-p", "no:pastebin"),
            None,
        ),
        (("--confcutdir=.", "--basetemp=../bt", "--ignore-glob=*inner*"), None),
        (("--capture=no", "-vv", "--tb=line", "-W", "error::UserWarning"), None),
        (
            ("--capture=tee-sys", "-q", "-q", "--no-header", "--no-summary", "--show-capture=no"),
            None,
        ),
        (("--import-mode=importlib", "-p", "no:cacheprovider", "tests/"), None),
        (("--import-mode=append", "--keep-duplicates", "tests/inner", "tests/inner"), None),
        (("--strict-markers", "--strict-config", "--assert=plain", "--setup-show"), None),
        (("--noconftest", "tests/inner"), None),
        (("tests/test_outer.py::test_params[1]", "tests/inner/test_inner.py::TestInner"), None),
        (("-n0", "tests"), None),
    ],
    ids=lambda words: " ".join(words) if words and isinstance(words[0], str) else "",
)
def test_words(
    pytester: pytest.Pytester, words: tuple[str, ...], expected: tuple[object, ...] | None
) -> None:
    if words[0] == "-n0":
        pytest.importorskip("xdist")
    folder = project(pytester, expected or ([], False, []))
    found = alike(folder, *words)
    if expected:
        assert found.counts["failed"] == 1, "what the options say is what the test expects"
    assert set(found.counts) <= {"passed", "failed", "skipped"}


def test_the_variable_has_its_say(pytester: pytest.Pytester) -> None:
    """``PYTEST_ADDOPTS`` with quotes, an ini file of its own, and the far side's options in it."""
    folder = project(pytester, (["x y"], True, ["a", "b"]))
    environ = {"PYTEST_ADDOPTS": "-c other.toml --many='x y' --flag"}
    assert alike(folder, environ=environ).counts["failed"] == 1
    asked = {"PYTEST_ADDOPTS": f"{environ['PYTEST_ADDOPTS']} {' '.join(FAR)}"}
    found, said = session(folder, environ=asked)
    assert found.far == set(found.cases), said
    assert len(found.cases) == 8


def test_where_the_plugin_is_left_out(pytester: pytest.Pytester) -> None:
    """Then its options are nobody's, as pytest says; nothing is run as if they counted."""
    found, said = session(project(pytester), *FAR, "-p", "no:remotegpu")
    assert found.status == 4
    assert "unrecognized arguments: --remote-all --remote=local:cpu" in said


def test_where_reports_can_not_travel(pytester: pytest.Pytester) -> None:
    found, said = session(project(pytester), *FAR, "-p", "no:reports")
    assert found.status == 4
    assert "ERROR: -p no:reports leaves out what pytest writes and reads reports with" in said


MANY = """
    import pytest

    @pytest.mark.parametrize("n", range(20_000))
    def test_many(n):
        assert n % 4_000 != 17
"""


@pytest.mark.timeout(900)
def test_twenty_thousand(pytester: pytest.Pytester) -> None:
    """Each of them comes back, and each that fails has its number."""
    folder = pytester.mkdir("project")
    folder.joinpath("test_many.py").write_text("\n".join(x[4:] for x in MANY.splitlines()))
    found = alike(folder, "-q", "--tb=short", patience=400)
    assert found.counts == {"passed": 19_995, "failed": 5}
    failed = [name for name, outcomes in found.cases.items() if outcomes == ("failed",)]
    assert failed == [f"test_many.py::test_many::test_many[{17 + 4_000 * k}]" for k in range(5)]
