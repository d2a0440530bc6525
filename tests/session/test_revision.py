"""The commit that was run is on record, and another commit than the working tree's can be run."""

from __future__ import annotations

import shutil
import sys

import pytest

from session.checkout import check_out, commit, git, recorded
from session.running import CPU, run, said

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

FAR = "--remote=command:env -u PYTHONPATH -C / PYTEST_REMOTEGPU_PRETEND_GPUS=1"


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """Give a checkout with a first commit, in which the value is 1."""
    pytester.makeini(f"[pytest]\nremotegpu_python = {sys.executable}\n")
    check_out(pytester)
    return pytester


@pytest.mark.parametrize("where", [CPU, FAR], ids=["local", "sent"])
def test_commit_and_changes_are_recorded(project: pytest.Pytester, where: str) -> None:
    head = git(project.path, "rev-parse", "HEAD")
    assert recorded(project, where)[0] == head
    (project.path / "value.py").write_text("VALUE = 2\n", encoding="utf-8")
    second = recorded(project, where)[0]
    assert second.startswith(f"{head}-dirty-")
    assert recorded(project, where)[0] == second
    (project.path / "value.py").write_text("VALUE = 3\n", encoding="utf-8")
    third = recorded(project, where)[0]
    assert third.startswith(f"{head}-dirty-")
    assert third != second
    (project.path / "untracked.py").touch()
    assert recorded(project, where)[0] not in (head, second, third)
    git(project.path, "clean", "-qf")
    git(project.path, "checkout", "-q", ".")
    assert recorded(project, where)[0] == head


def test_under_xdist_it_is_recorded_once(project: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    assert recorded(project, FAR, "-n1")[0] == git(project.path, "rev-parse", "HEAD")


def test_without_git_nothing_is_recorded(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu
        def test_it(): pass
    """)
    result = run(pytester, CPU, "--junitxml=out.xml")
    result.assert_outcomes(passed=1)
    assert "remotegpu_commit" not in (pytester.path / "out.xml").read_text(encoding="utf-8")
    assert not [line for line in said(result).splitlines() if line.startswith("commit ")]


def test_another_commit_is_run(project: pytest.Pytester) -> None:
    first = git(project.path, "rev-parse", "HEAD")
    (project.path / "value.py").write_text("VALUE = 2\n", encoding="utf-8")
    second = commit(project.path, "two")
    git(project.path, "tag", "-a", "v2", "-m", "two")
    (project.path / "value.py").write_text("VALUE = 3\n", encoding="utf-8")
    (project.path / "untracked.py").touch()
    status = git(project.path, "status", "--porcelain")
    for ref, there, value in (("HEAD~1", first, 1), ("v2", second, 2), (first[:10], first, 1)):
        assert recorded(project, FAR, f"--remote-rev={ref}")[0] == there
        result = run(project, FAR, "-rP", f"--remote-rev={ref}")
        assert f"the value is {value}" in said(result)
    assert "the value is 3" in said(run(project, FAR, "-rP"))
    assert git(project.path, "status", "--porcelain") == status
    assert git(project.path, "worktree", "list").count("\n") == 0


def test_a_folder_of_a_checkout_and_its_submodules(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = project.path.parent / f"{project.path.name}-library"
    git(library, "init", "-q")
    (library / "lib.py").write_text("VALUE = 10\n", encoding="utf-8")
    commit(library, "ten")
    inner = project.path / "inner"
    git(project.path, "submodule", "add", "-q", str(library), "inner/lib")
    (inner / "pytest.ini").write_text(f"[pytest]\nremotegpu_python = {sys.executable}\n")
    (inner / "test_inner.py").write_text(
        "import pytest\nfrom lib.lib import VALUE\n\n"
        "@pytest.mark.gpu\ndef test_value(): print('the value is', VALUE)\n"
    )
    commit(project.path, "a submodule")
    (inner / "lib/lib.py").write_text("VALUE = 11\n", encoding="utf-8")
    monkeypatch.chdir(inner)
    text = said(run(project, FAR, "-rP", "--remote-rev=HEAD"))
    assert "the value is 10" in text
    assert "VALUE = 11" in (inner / "lib/lib.py").read_text(encoding="utf-8")
    shutil.rmtree(inner / "lib")
    (inner / "lib").mkdir()
    (inner / "lib/lib.py").write_text("VALUE = 12\n", encoding="utf-8")
    text = said(run(project, FAR, "--remote-rev=HEAD"))
    assert "note: the files of submodule 'lib' are not sent" in text


@pytest.mark.parametrize("collects", ["far", "here"])
def test_what_the_commit_lacks_is_said(project: pytest.Pytester, collects: str) -> None:
    """The tests are those of the commit, unless this side has collected its own."""
    project.makepyfile(
        test_new="""
            import pytest

            @pytest.mark.gpu
            def test_new(): pass
        """,
        test_it="""
            import pathlib
            import pytest

            @pytest.mark.gpu
            def test_value(): open("data.txt")
        """,
    )
    commit(project.path, "needs data")
    project.makepyfile(test_new="")
    project.makepyfile(test_new="import pytest\n\n@pytest.mark.gpu\ndef test_newer(): pass\n")
    (project.path / "data.txt").touch()
    result = run(project, FAR, "--remote-rev=HEAD", "-v", "-o", f"remotegpu_collect={collects}")
    far = collects == "far"
    result.assert_outcomes(failed=1, passed=int(far), errors=int(not far))
    text = said(result)
    assert "'data.txt' was not sent: --remote-rev=HEAD sends what that commit has" in text
    assert ("test_newer" in text) == (not far)


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ([FAR, "--remote-rev=nothing"], "--remote-rev='nothing' names no commit of"),
        ([FAR, "--remote-rev=--all"], "--remote-rev='--all' names no commit"),
        ([FAR, "--remote-rev=HEAD:value.py"], "names no commit of"),
        ([CPU, "--remote-rev=HEAD"], "--remote-rev=HEAD needs a far side that files are sent to"),
    ],
)
def test_what_names_no_commit_is_a_usage_error(
    project: pytest.Pytester, args: list[str], why: str
) -> None:
    result = run(project, *args)
    assert result.ret == 4
    assert why in said(result)


def test_without_git_there_is_no_commit(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n\n@pytest.mark.gpu\ndef test_it(): pass\n")
    result = run(pytester, FAR, "--remote-rev=HEAD")
    assert result.ret == 4
    assert "--remote-rev='HEAD' needs a git checkout" in said(result)


def test_files_are_collected_of_that_commit(project: pytest.Pytester) -> None:
    """The tests are those that it has; a file that it lacks is an error that says so."""
    options = (FAR, "-o", "remotegpu_collect=far", "--remote-rev=HEAD", "-v")
    head = "import pytest, value\npytestmark = pytest.mark.gpu\n"
    project.makepyfile(test_it=head + "def test_later(): assert False")
    project.makepyfile(value="raise ImportError('not here')\n")
    result = run(project, *options)
    result.assert_outcomes(passed=1)
    assert "test_it.py::test_value PASSED" in said(result)
    project.makepyfile(test_new=head + "def test_new(): pass")
    lacking = run(project, *options, "--continue-on-collection-errors")
    lacking.assert_outcomes(passed=1, errors=1)
    assert "ERROR collecting test_new.py" in said(lacking)
    assert "'test_new.py' was not sent: --remote-rev=HEAD sends what" in said(lacking)
