"""Files of tests in containers: what comes back of one that crashes, takes too long, or is lost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loopback import LoopbackModal
from session.running import Started, run, said, until

T4 = "--remote=modal:T4"


def kept(root: Path) -> dict[str, dict[str, bytes]]:
    """Give the files that came, by test and name."""
    found: dict[str, dict[str, bytes]] = {}
    for path in sorted(root.glob("*/**/*")):
        if path.is_file():
            folder, *names = path.relative_to(root).parts
            test = re.sub(r"^test_\w+\.py-|-[0-9a-f]{8}$", "", folder)
            found.setdefault(test, {})["/".join(names)] = path.read_bytes()
    return found


def test_whatever_becomes_of_the_test(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    pytester.makepyfile("""
        import os, signal, time, pytest

        pytestmark = pytest.mark.gpu

        @pytest.fixture(autouse=True)
        def data(artifacts_dir):
            (artifacts_dir / "data").write_bytes(b"x" * 1_500_000)
            return artifacts_dir

        def test_passes(): pass

        def test_fails(): assert 0

        def test_exits(data):
            (data / "last").touch()
            os._exit(3)

        def test_segfaults(): os.kill(os.getpid(), signal.SIGSEGV)

        @pytest.mark.gpu(timeout=3)
        def test_takes_too_long(data):
            (data / "last").touch()
            time.sleep(60)

        def test_after(): pass
    """)
    result = run(pytester, T4, "--remote-artifacts=out")
    result.assert_outcomes(passed=2, failed=4)
    files = kept(pytester.path / "out")
    data = {"data": b"x" * 1_500_000}
    assert files == {
        "test_passes": data,
        "test_fails": data,
        "test_exits": {**data, "last": b""},
        "test_segfaults": data,
        "test_takes_too_long": {**data, "last": b""},
        "test_after": data,
    }
    assert len(service.calls) == 1
    assert "artifacts: 8 in " in said(result)


LOST = """
    import os, pathlib, time, pytest

    HERE = pathlib.Path({here!r})

    @pytest.mark.gpu
    def test_one(artifacts_dir):
        attempt = len(list(HERE.glob("attempt-*"))) + 1
        (HERE / f"attempt-{{attempt}}").touch()
        if attempt <= {losses}:
            (artifacts_dir / f"checkpoint-{{attempt}}").write_text("still")
            while True:
                (artifacts_dir / "log").open("a").write("never still")
                time.sleep(0.2)
        (artifacts_dir / "result").write_text("done")
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("losses", [1, 2])
def test_a_container_that_is_lost(
    pytester: pytest.Pytester, service: LoopbackModal, losses: int
) -> None:
    """What lay still is here before the end of the test, and makes way for the next attempt's."""
    here = pytester.mkdir("here")
    pytester.makepyfile(LOST.format(here=str(here), losses=losses))
    root = pytester.path / "out"
    session = Started(pytester, T4, "--remote-artifacts=out")
    try:
        for attempt in range(1, losses + 1):
            name = f"checkpoint-{attempt}"
            assert until(lambda: name in kept(root).get("test_one", {})), session.text  # noqa: B023
            assert kept(root) == {"test_one": {name: b"still"}}
            (rented,) = service.running
            service.lose(rented)
        status = session.process.wait(40)
    finally:
        session.close()
    if losses == 1:
        assert status == 0, session.text
        assert kept(root) == {"test_one": {"result": b"done"}}
    else:
        assert status == 1, session.text
        assert kept(root) == {"test_one": {"checkpoint-2": b"still"}}
        assert "the worker was lost twice while this test ran" in session.text
    assert "artifacts: 1 in " in session.text


@pytest.mark.timeout(120)
def test_an_attempt_without_files_leaves_none_of_the_lost_one(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    here = pytester.mkdir("here")
    pytester.makepyfile(LOST.format(here=str(here), losses=1).replace('write_text("done")', "name"))
    root = pytester.path / "out"
    session = Started(pytester, T4, "--remote-artifacts=out")
    try:
        assert until(lambda: "test_one" in kept(root)), session.text
        (rented,) = service.running
        service.preempt(rented)
        status = session.process.wait(40)
    finally:
        session.close()
    assert status == 0, session.text
    assert kept(root) == {}
    assert "artifacts: " not in session.text


def test_lines_that_ran_in_a_container(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    """They are counted under the names of the files here, also of a test before a crash."""
    pytest.importorskip("pytest_cov", reason="needs pytest-cov: pip install pytest-cov")
    pytester.makepyfile(
        lib="""
        def before():
            return 1

        def crashed():
            return 2

        def after():
            return 3

        def never():
            return 4
        """,
        test_it="""
        import os, pytest, lib

        pytestmark = pytest.mark.gpu

        def test_before(): lib.before()

        def test_crashes():
            os._exit(lib.crashed())

        def test_after(): lib.after()
        """,
    )
    result = run(pytester, T4, "--cov=lib", "--cov-report=term-missing")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.re_match_lines([r"lib\.py +8 +2 +75% +5, 11"])
    assert len(service.calls) == 1
