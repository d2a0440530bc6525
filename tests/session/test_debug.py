"""What ``--remote-debug`` shows: how a worker is started, what runs there, and when."""

from __future__ import annotations

import re
import sys

import pytest

from .running import CPU, run


@pytest.mark.parametrize("collects", ["far", "here"])
def test_timeline_with_commands(pytester: pytest.Pytester, collects: str) -> None:
    """Each is told of when it came, a worker's hello before the tests that it collects."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.gpu
        def test_far():
            pass
        """
    )
    own = ("-o", f"remotegpu_collect={collects}")
    result = run(pytester, CPU, "--remote-fresh", "--remote-debug", "-k", "far and not near", *own)
    text = [line for line in result.stdout.lines if line.startswith("remote debug: +")]
    times = [float(re.match(r"remote debug: \+([\d.]+) s", line)[1]) for line in text]  # type: ignore[index]
    assert times == sorted(times)
    assert f"{sys.executable} -P -m pytest_remotegpu.worker" in text[0]
    assert "runs there: pytest " in text[1]
    assert "--remote=local:cpu --remote-fresh --remote-debug -k 'far and not near'" in text[1]
    words = [re.split("[(:]", line.partition(" s  local-1: ")[2])[0] for line in text[2:]]
    said = [word for word in words if word != "runs there"]
    collected = ["StretchEnded", "1 tests on 1 GPU"] if collects == "far" else []
    assert said == ["Hello", "Collected", *collected, "StretchEnded", "Ended", "Lost"]
    assert ("local-1: collection on 1 GPU: " in text[0]) == (collects == "far")


def test_no_line_is_glued_to_dots(pytester: pytest.Pytester) -> None:
    """Whoever reads line by line, as editors do, finds each line whole."""
    pytester.makepyfile(
        """
        import pytest

        def test_here():
            pass

        @pytest.mark.gpu
        def test_far():
            pass
        """
    )
    result = run(pytester, CPU, "--remote-fresh", "--remote-debug", "-q")
    lines = result.stdout.lines
    assert "." in lines
    assert sum("remote debug: " in line for line in lines) >= 7
    assert all(line.startswith("remote debug: ") for line in lines if "remote debug: " in line)


SECRETS = (
    "planted-in-option", "planted-in-word", "planted-in-url", "planted-in-spec", "planted-in-value",
    "planted-in-token", "planted-in-local", "planted-in-image", "planted-in-login",
)  # fmt: skip


@pytest.mark.parametrize("fails", [False, True], ids=["runs", "fails"])
def test_no_secret_is_published(
    fails: bool, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a report of a fault asks for: the log, the plan, the files of a run."""
    monkeypatch.setenv("MY_APP_MODE", "planted-in-value")
    monkeypatch.setenv("HF_TOKEN", "planted-in-token")
    monkeypatch.setenv("LOCAL_PASSWORD", "planted-in-local")
    raised = "raise OSError(f\"no {os.environ['MY_APP_MODE']}\")" if fails else "pass"
    pytester.makeconftest(f"""
        import os

        def pytest_addoption(parser):
            for name in ("--api-token", "--db-password", "--db"):
                parser.addoption(name)

        def pytest_configure():
            if "REMOTEGPU_WORKER" in os.environ:
                {raised}
    """)
    pytester.makeini("""
        [pytest]
        remotegpu_env = MY_APP_*
        remotegpu_secrets = env:HF_TOKEN
        remotegpu_image = env: IMAGE_VALUE=planted-in-image
    """)
    pytester.makepyfile("""
        import os
        import pytest

        @pytest.mark.gpu
        def test_far():
            assert os.environ["MY_APP_MODE"].startswith("planted")
            assert os.environ["SPEC_VALUE"].startswith("planted")
    """)
    spec = (
        "--remote=command:env SPEC_VALUE=planted-in-spec PYTEST_REMOTEGPU_PRETEND_GPUS=1 nice -n 0"
    )
    options = (
        spec, f"-oremotegpu_python={sys.executable}", "--api-token=planted-in-option",
        "--db-password", "planted-in-word", "--db=postgres://me:planted-in-url@box/db",
    )  # fmt: skip
    more = (
        "-v",
        "--remote-debug",
        "--remote-timeline",
        "--junitxml=j.xml",
        "--remote-json=run.json",
    )
    runs = [pytester.runpytest_subprocess(*options, *each) for each in (more, ["--remote-plan"])]
    assert runs[0].ret == (2 if fails else 0)
    text = "\n".join(f"{result.stdout.str()}\n{result.stderr.str()}" for result in runs)
    assert "--api-token=*** --db-password *** --db=postgres://me:***@box/db" in text.replace(
        "'", ""
    )
    assert "SPEC_VALUE=***" in text
    if fails:  # its traceback is shown as plain pytest shows it, and not in the log as well
        text = "\n".join(line for line in text.splitlines() if line.startswith("remote debug: "))
        assert "OSError: no ***" in text
    else:
        found = [pytester.path / "j.xml", pytester.path / "run.json"]
        found += [each for each in pytester.path.glob(".pytest_cache/**/*") if each.is_file()]
        text += "".join(each.read_text(encoding="utf-8", errors="replace") for each in found)
    for secret in SECRETS:
        assert secret not in text


def test_a_far_side_that_can_t_start_publishes_none(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by its name nor by the command that ended, and what that had to say."""
    monkeypatch.setenv("LOCAL_PASSWORD", "planted-in-local")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.gpu
        def test_far():
            pass
        """
    )
    spec = (
        "--remote=command:sh -c 'echo no \"$@\" >&2; exit 3' planted-in-local"
        " -u me:planted-in-login -H 'Authorization: Bearer planted-in-token'"
        " https://me:planted-in-url@box/ pw=planted-in-word"
    )
    more = ("--remote-debug", "--junitxml=j.xml", "--remote-json=run.json")
    runs = [pytester.runpytest_subprocess(spec, *each) for each in (more, ["--remote-plan"])]
    assert [result.ret for result in runs] == [4, 4]
    found = [pytester.path / "j.xml", pytester.path / "run.json"]
    text = "\n".join(f"{result.stdout.str()}\n{result.stderr.str()}" for result in runs)
    text += "".join(each.read_text(encoding="utf-8") for each in found if each.exists())
    assert "ended with exit status 3" in text
    for secret in SECRETS:
        assert secret not in text
