"""``--remote=ssh:HOST`` against a real server: what travels there, how it runs, what comes back."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from editable import Around, uses
from session.running import run, said
from sshd import Sshd

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"
HERE = ("-o", "remotegpu_collect=here")
"""Tests are known before anything goes wrong; of far collection its own tests know."""
BOX = ("--remote=ssh:gpubox", *HERE)
PRETENDED = "on ssh:gpubox (no GPU was used)"


@pytest.mark.usefixtures("gpubox")
def test_quickstart(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the README, as a user runs it, and its artifacts."""
    project = pytester.path / "quickstart"
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
    shutil.copytree(QUICKSTART, project, ignore=ignored)
    monkeypatch.chdir(project)
    result = run(pytester, *BOX, "--remote-artifacts=artifacts", "-v", "--junitxml=junit.xml")
    text = said(result)
    assert result.ret == pytest.ExitCode.OK, text
    result.assert_outcomes(passed=7)
    assert "remote: 3 tests on 1 GPU, 1 on 2 GPUs, 3 here" in text
    assert PRETENDED in text
    assert "artifacts: 2 in " in text
    curves = sorted(project.glob("artifacts/*/loss.csv"))
    assert [curve.read_text(encoding="utf-8").count("\n") for curve in curves] == [31, 31]
    properties = [
        {one.attrib["name"]: one.attrib["value"] for one in case.iter("property")}
        for case in ET.parse(project / "junit.xml").iter("testcase")  # noqa: S314
    ]
    cards = [there.get("remotegpu_gpu", "here") for there in properties]
    assert cards == 3 * ["here"] + 3 * ["1 GPU (pretend)"] + ["2 GPUs (pretend)"]
    assert {one["remotegpu_backend"] for one in properties if one} == {"ssh:gpubox"}


TREE = """
    import os
    import subprocess
    from pathlib import Path
    import pytest

    pytestmark = pytest.mark.gpu
    ROOT = Path(__file__).parent
    CANARY = "{yranac}"[::-1]

    def test_it_is_a_copy():
        assert ROOT.is_relative_to(Path.home() / ".cache" / "pytest-remotegpu" / "trees")
        assert str(ROOT) != "{root}"

    def test_files():
        assert (ROOT / "tracked.txt").read_text() == "in the index"
        assert (ROOT / "untracked.txt").read_text() == "not in the index"
        assert (ROOT / "with ä blank.txt").exists()
        assert os.readlink(ROOT / "link.txt") == "tracked.txt"
        subprocess.run([ROOT / "tool.sh"], check=True)
        assert not os.access(ROOT / "tracked.txt", os.X_OK)

    @pytest.mark.parametrize("name", [".env", "server.pem", ".git", "step.ckpt", "data"])
    def test_left_out(name):
        assert not (ROOT / name).exists()

    def test_no_canary():
        kept = Path.home() / ".cache" / "pytest-remotegpu"
        folders = (kept, Path(os.environ["TMPDIR"]))
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        assert ROOT / "tracked.txt" in files
        assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
        assert CANARY not in "".join(os.environ.values())

    def test_data():
        assert (ROOT / "data" / "big.bin").read_bytes() == b"data"
"""


def test_the_tree_travels_by_the_rules(
    gpubox: Sshd, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that git ignores is missing there; the report names the glob that sends it."""
    canary, root = uuid.uuid4().hex, pytester.path
    monkeypatch.setenv("MY_TOKEN", canary)
    pytester.makeini("[pytest]\nremotegpu_exclude = *.ckpt\n")
    pytester.makepyfile(test_far=TREE.format(yranac=canary[::-1], root=root))
    (root / "data").mkdir()
    texts = {
        ".env": f"TOKEN={canary}",
        ".gitignore": "data",
        "data/big.bin": "data",
        "server.pem": canary,
        "step.ckpt": canary,
        "tool.sh": "#!/bin/sh\n",
        "tracked.txt": "in the index",
        "untracked.txt": "not in the index",
        "with ä blank.txt": "",
    }
    for name, text in texts.items():
        (root / name).write_text(text, encoding="utf-8")
    (root / "tool.sh").chmod(0o755)
    (root / "link.txt").symlink_to("tracked.txt")
    for command in ("git init -q", "git add tracked.txt .env server.pem"):
        subprocess.run(command.split(), cwd=root, check=True)
    result = pytester.runpytest_inprocess(*BOX)
    text = said(result)
    result.assert_outcomes(passed=8, failed=1)
    assert re.search(r"No such file or directory: '.*data/big.bin'", text), text
    assert "'data/big.bin' was not sent: git ignores it" in text.replace(f"{root}/", "")
    assert "add 'data/big.bin' to remotegpu_include" in text
    assert canary not in text + "".join(gpubox.calls())
    again = pytester.runpytest_inprocess(
        *BOX, "-o", "remotegpu_include=data/big.bin", "-k", "_data"
    )
    again.assert_outcomes(passed=1, deselected=8)


def test_named_variables_travel_and_no_others(
    gpubox: Sshd, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\nremotegpu_env = MY_APP_*\n")
    pytester.makepyfile("""
        import json
        import os
        import pytest

        @pytest.mark.gpu
        def test_far(artifacts_dir):
            (artifacts_dir / "environ.json").write_text(json.dumps(dict(os.environ)))
    """)
    value = f"{uuid.uuid4()} 'ä' \n$HOME"
    monkeypatch.setenv("MY_APP_MODE", value)
    monkeypatch.setenv("MY_TOKEN", "secret")
    result = pytester.runpytest_inprocess(*BOX, "--remote-artifacts=out", "--remote-debug")
    result.assert_outcomes(passed=1)
    [path] = pytester.path.glob("out/*/environ.json")
    there = json.loads(path.read_text(encoding="utf-8"))
    assert there["MY_APP_MODE"] == value
    assert "MY_TOKEN" not in there
    assert there["HOME"] == str(gpubox.home)
    assert [name for name in there if name.startswith("PYTEST_REMOTEGPU")] == []
    assert there["CUDA_VISIBLE_DEVICES"] == ""
    assert value[:36] not in said(result) + "".join(gpubox.calls())


def test_the_far_interpreter_is_the_one_that_is_named(
    gpubox: Sshd, pytester: pytest.Pytester
) -> None:
    """Also one with a blank in its name, which a shell on the far side must not split."""
    folder = gpubox.home / "my envs"
    folder.mkdir()
    python = folder / "python"
    script = f'#!/bin/sh\nVIA="$0" exec {shlex.quote(sys.executable)} "$@"\n'
    python.write_text(script, encoding="utf-8")
    python.chmod(0o755)
    pytester.makepyfile(f"""
        import os
        import pytest

        @pytest.mark.gpu
        def test_far():
            assert os.environ["VIA"] == "{python}"
    """)
    result = pytester.runpytest_inprocess(*BOX, "-o", f"remotegpu_python={python}")
    result.assert_outcomes(passed=1)


LAYOUT = """
    import os
    import sys
    from pathlib import Path
    import inner
    import outer
    import pytest

    @pytest.mark.gpu
    def test_far(pytestconfig):
        assert pytestconfig.rootpath == ROOT
        for module in (inner, outer):
            assert Path(module.__file__).is_relative_to(ROOT)
        assert Path.cwd() == ROOT / "work"
        assert Path("near.txt").read_text() == "near"
        assert ROOT != Path("{root}")
        print("run in", Path.cwd())
        os.write(2, b"from below\\n")
        print("an error", file=sys.stderr)

    ROOT = Path(__file__).parents[1]
"""


def test_folders_imports_and_live_output(
    gpubox: Sshd, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session below the root, of a project that is installed in editable mode, with ``-s``."""
    root = pytester.path / "project"
    for name, text in {
        "pytest.ini": "[pytest]\npythonpath = lib\n",
        "src/inner/__init__.py": "",
        "lib/outer.py": "",
        "tests/test_it.py": LAYOUT.format(root=root),
        "work/near.txt": "near",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(textwrap.dedent(text), encoding="utf-8")
    # what a .pth file in site-packages comes to
    monkeypatch.setenv("PYTHONPATH", str(root / "src"))
    monkeypatch.chdir(root / "work")
    result = run(pytester, *BOX, "-s", "../tests/test_it.py")
    text = said(result)
    assert result.ret == pytest.ExitCode.OK, text
    result.assert_outcomes(passed=1)
    assert re.search(rf"run in {re.escape(str(gpubox.home))}/\S+/work\n", text)
    assert "from below\nan error" in text


@pytest.mark.usefixtures("gpubox")
def test_editable_installs_beside_the_project(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    around = Around(pytester, monkeypatch)
    first, second = around.library("first"), around.library("second")
    around.environment.install("first", first, entry=first / "src")
    around.environment.install("second", second, mapping={"second": second / "src" / "second"})
    pytester.makepyfile(uses("first", "second"))
    run(pytester, *BOX).assert_outcomes(passed=1)


@pytest.mark.usefixtures("gpubox")
def test_a_log_that_grows_meanwhile_is_sent_as_it_was(pytester: pytest.Pytester) -> None:
    """As with ``pytest --remote=ssh:gpubox | tee run.log``, in the folder that is sent."""
    pytester.makeconftest("""
        def pytest_remotegpu_order():
            with open("run.log", "a") as log:
                log.write("more\\n")
    """)
    pytester.makepyfile("""
        import pathlib
        import pytest

        @pytest.mark.gpu
        def test_far():
            assert pathlib.Path("run.log").read_text() == "begun\\n"
    """)
    (pytester.path / "run.log").write_text("begun\n", encoding="utf-8")
    pytester.runpytest_inprocess(*BOX).assert_outcomes(passed=1)
    assert (pytester.path / "run.log").read_text(encoding="utf-8") == "begun\nmore\n"


@pytest.mark.parametrize("look", ["--remote-plan", "--collect-only"])
def test_a_look_starts_nothing(look: str, gpubox: Sshd, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.gpu(2)\ndef test_far(): pass\n")
    calls, log = gpubox.calls(), gpubox.log()
    result = pytester.runpytest_inprocess(*BOX, look)
    assert result.ret == pytest.ExitCode.OK
    assert "test_far" in said(result)
    assert (gpubox.calls(), gpubox.log()) == (calls, log)
