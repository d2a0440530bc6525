"""Files that tests write to ``artifacts_dir``: here afterwards, whatever became of the test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from junit_properties import properties

from .running import CPU, run, said

TESTS = """
    import os
    import pathlib
    import pytest

    pytestmark = pytest.mark.gpu

    def test_files(artifacts_dir):
        assert list(artifacts_dir.iterdir()) == []
        (artifacts_dir / "deep" / "er").mkdir(parents=True)
        (artifacts_dir / "deep" / "er" / "data.bin").write_bytes(bytes(range(256)) * 5000)
        (artifacts_dir / "empty").touch()
        (artifacts_dir / "link").symlink_to("/etc/hostname")

    def test_fails(artifacts_dir):
        (artifacts_dir / "why.txt").write_text("this is why")
        assert False

    def test_crashes(artifacts_dir):
        (artifacts_dir / "last.txt").write_text("last words")
        os._exit(3)

    @pytest.fixture
    def in_fixture(artifacts_dir):
        yield
        (artifacts_dir / "late.txt").write_text("in teardown")

    def test_teardown(in_fixture): pass

    def test_leaves_none(artifacts_dir): pass

    def test_asks_for_none(): pass

    @pytest.mark.parametrize("name", ["a/b c", "A/b c", "x" * 250, "\\u00fc::\\n"])
    def test_names(name, artifacts_dir):
        (artifacts_dir / "odd: name*?.txt").write_text(name)
"""


def kept(root: Path) -> dict[str, dict[str, bytes]]:
    """Give the files below *root*: for each test, less the digest in its folder's name, by name."""
    found: dict[str, dict[str, bytes]] = {}
    for folder in sorted(root.iterdir()):
        name = re.sub(r"-[0-9a-f]{8}$", "", folder.name)
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        found[name if name not in found else folder.name] = files
    return found


def check(files: dict[str, dict[str, bytes]]) -> None:
    """See that everything is there that the tests above have written."""
    assert files["test_it.py-test_files"] == {
        "deep/er/data.bin": bytes(range(256)) * 5000,
        "empty": b"",
    }
    assert files["test_it.py-test_fails"] == {"why.txt": b"this is why"}
    assert files["test_it.py-test_teardown"] == {"late.txt": b"in teardown"}
    named = [name for name in files if name.startswith("test_it.py-test_names")]
    contents = {data.decode() for name in named for data in files[name].values()}
    assert contents == {"a/b c", "A/b c", "x" * 250, "\u00fc::\n"}
    assert all(len(files[name]) == 1 for name in named)
    assert all(re.fullmatch(r"[\w.\[\]-]+", name) for name in named)


def test_they_come_back(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TESTS)
    result = pytester.runpytest_inprocess(CPU, "--remote-artifacts=out")
    result.assert_outcomes(passed=8, failed=2)
    files = kept(pytester.path / "out")
    check(files)
    assert files["test_it.py-test_crashes"] == {"last.txt": b"last words"}
    assert "test_it.py-test_leaves_none" not in files
    assert "test_it.py-test_asks_for_none" not in files
    assert f"artifacts: 9 in {pytester.path / 'out'}" in said(result)
    (odd,) = [name for data in files.values() for name in data if name.startswith("odd")][:1]
    assert odd.startswith("odd_ name__.txt")


@pytest.mark.parametrize("more", [[], ["-n2"]])
def test_a_test_names_its_folder_in_the_junit_file(
    pytester: pytest.Pytester, more: list[str]
) -> None:
    pytester.makepyfile(test_it=TESTS)
    run(pytester, CPU, "--remote-artifacts=out", "--junitxml=j.xml", *more)
    found = properties(pytester.path / "j.xml")
    named = {name: said["artifacts"] for name, said in found.items() if "artifacts" in said}
    assert len(named) == 8
    assert {"test_files", "test_fails", "test_crashes", "test_teardown"} <= named.keys()
    assert sorted(named.values()) == sorted(
        path.relative_to(pytester.path).as_posix() for path in (pytester.path / "out").iterdir()
    )


def test_what_an_earlier_run_left_is_gone_and_other_tests_files_stay(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        test_it="""
        import os
        import pytest

        pytestmark = pytest.mark.gpu

        def test_one(artifacts_dir):
            for name in os.environ["NAMES"].split():
                (artifacts_dir / name).touch()

        def test_two(artifacts_dir):
            (artifacts_dir / "two").touch()
    """
    )
    invocation = pytester.mkdir("sub")
    monkeypatch.chdir(invocation)
    root = invocation / "out"
    (root / "mine").mkdir(parents=True)
    (root / "mine" / "notes.txt").write_text("keep")
    seen = []
    for names, args in (("a b", []), ("b", ["-k", "one"]), ("", ["-k", "one"])):
        monkeypatch.setenv("NAMES", names)
        result = pytester.runpytest_inprocess("..", CPU, "--remote-artifacts=out", *args)
        assert result.ret == pytest.ExitCode.OK
        seen.append([sorted(files) for files in kept(root).values() if files])
    assert seen == [
        [["notes.txt"], ["a", "b"], ["two"]],
        [["notes.txt"], ["b"], ["two"]],
        [["notes.txt"], ["two"]],
    ]


def test_a_limit_leaves_the_largest_out_and_says_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu
        @pytest.mark.parametrize("n", [1, 2])
        def test_big(n, artifacts_dir):
            (artifacts_dir / "small").write_bytes(bytes(1000))
            (artifacts_dir / "large").write_bytes(bytes(5000))
    """)
    result = pytester.runpytest_inprocess(
        CPU, "--remote-artifacts=out", "-o", "remotegpu_max_artifact=4KiB"
    )
    result.assert_outcomes(passed=2)
    assert [sorted(files) for files in kept(pytester.path / "out").values()] == [["small"]] * 2
    text = said(result)
    assert "'large' of 5000 bytes" in text
    assert "remotegpu_max_artifact" in text
    assert "artifacts: 2 in " in text


def test_without_a_folder_they_are_in_the_cache(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_far(artifacts_dir): (artifacts_dir / "f").write_text("far")

        def test_here(artifacts_dir): (artifacts_dir / "h").write_text("here")
    """)
    result = pytester.runpytest_inprocess(CPU)
    result.assert_outcomes(passed=2)
    (root,) = pytester.path.glob(".pytest_cache/**/remotegpu/artifacts")
    files = kept(root)
    assert sorted(data for each in files.values() for data in each.values()) == [b"far", b"here"]
    assert f"artifacts: 2 in {root}" in said(result)
    assert said(result).count("artifacts: ") == 1


@pytest.mark.parametrize("first", [(CPU,), (), ("-n1", CPU)], ids=["far", "here", "xdist"])
def test_a_session_without_a_cache_leaves_the_next_ones_to_pytest(
    pytester: pytest.Pytester, first: tuple[str, ...]
) -> None:
    """What pytest puts into its cache, so that nobody checks that in, is there as ever."""
    if "-n1" in first:
        pytest.importorskip("xdist")
    pytester.makeini("[pytest]\nmarkers = gpu: registered here, so that the bodies run\n")
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_far(artifacts_dir): (artifacts_dir / "f").write_text("far")
    """)
    result = run(pytester, *first, "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    assert not (pytester.path / ".pytest_cache").exists()
    root = pytester.path / ".remotegpu"
    assert f"artifacts: 1 in {root / 'artifacts'}" in said(result)
    assert list(kept(root / "artifacts").values()) == [{"f": b"far"}]
    assert "\n*\n" in (root / ".gitignore").read_text()
    run(pytester, CPU).assert_outcomes(passed=1)
    made = {path.name for path in (pytester.path / ".pytest_cache").iterdir()}
    assert {".gitignore", "CACHEDIR.TAG", "README.md"} <= made
    command = ["git", "init", "-q"]
    subprocess.run(command, cwd=pytester.path, check=True)
    command = ["git", "status", "--porcelain", "--untracked-files=all"]
    told = subprocess.run(command, cwd=pytester.path, check=True, capture_output=True, text=True)
    assert "remotegpu" not in told.stdout
    assert "test_" in told.stdout


def test_without_a_far_side_they_are_kept_alike(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers = gpu: registered here, so that the bodies run\n")
    pytester.makepyfile(test_it=TESTS.replace("os._exit(3)", "pass"))
    for _ in range(2):
        result = pytester.runpytest_inprocess("--remote-artifacts=out")
        result.assert_outcomes(passed=9, failed=1)
        check(
            {
                name: {key: data for key, data in files.items() if key != "link"}
                for name, files in kept(pytester.path / "out").items()
            }
        )
        assert f"artifacts: 9 in {pytester.path / 'out'}" in said(result)


FEW = """
    import pytest

    pytestmark = pytest.mark.gpu

    @pytest.mark.parametrize("n", range(3))
    def test_writes(n, artifacts_dir):
        (artifacts_dir / "small").write_text("small")
        (artifacts_dir / "large").write_bytes(bytes(3_000_000))

    def test_after(): pass
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that refuses anybody")
@pytest.mark.parametrize("more", [[], ["-n2"]])
def test_a_folder_that_can_not_be_made_costs_no_verdict(
    more: list[str], pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(FEW)
    result = run(pytester, CPU, "--remote-artifacts=/proc/none/such", *more)
    result.assert_outcomes(passed=4)
    assert result.ret == pytest.ExitCode.OK
    text = said(result)
    assert text.count("artifacts are missing") == 1
    assert "/proc/none/such can't be written to: No such file or directory" in text
    assert "artifacts: " not in text


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX limits")
def test_a_file_that_does_not_fit_is_missing_and_the_others_are_there(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(FEW)
    pytester.makeconftest("""
        import os
        import resource

        def allow(size):
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (size or hard, hard))

        def pytest_collection_finish():
            allow(0 if "REMOTEGPU_WORKER" in os.environ else 2_000_000)

        def pytest_sessionfinish():
            allow(0)
    """)
    result = run(pytester, CPU, "--remote-artifacts=out")
    result.assert_outcomes(passed=4)
    assert [sorted(files) for files in kept(pytester.path / "out").values()] == [["small"]] * 3
    assert said(result).count("out can't be written to: File too large") == 1
    assert "artifacts: 3 in " in said(result)


@pytest.mark.parametrize("given", ["file", "file/sub"])
@pytest.mark.parametrize("far", [[CPU], [CPU, "-n2"], []])
def test_a_file_in_the_place_of_the_folder_is_a_usage_error(
    far: list[str], given: str, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(FEW)
    file = pytester.path / "file"
    file.write_text("mine")
    result = run(pytester, f"--remote-artifacts={given}", *far)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = said(result)
    assert f"--remote-artifacts={given!r} can be no folder, since {str(file)!r} is none" in text
    assert "name a folder" in text
    assert file.read_text() == "mine"


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that refuses anybody")
def test_a_cache_that_can_not_be_made_costs_no_verdict(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FEW)
    pytester.makeini("[pytest]\ncache_dir = /proc/none\n")
    (pytester.path / ".remotegpu").touch()
    result = run(pytester, CPU, "-p", "no:warnings")
    result.assert_outcomes(passed=4)
    assert said(result).count(".remotegpu/artifacts can't be written to: Not a directory") == 1
