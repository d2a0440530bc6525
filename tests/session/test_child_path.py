"""Processes that a test starts find there what they would find here: the same import path."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from session.running import run
from session.test_missing import EDITABLE

FAR = "--remote=command:env -u PYTHONPATH -C / PYTEST_REMOTEGPU_PRETEND_GPUS=1"
OWN = "--remote=command:env -C / PYTHONPATH=/of/its/own PYTEST_REMOTEGPU_PRETEND_GPUS=1"
CHILD = """
    import os, pathlib, subprocess, sys
    import pytest

    @pytest.mark.gpu
    def test_child(tmp_path):
        {before}
        subprocess.run([sys.executable, "-c", "import my_helper"], check=True, cwd=tmp_path)
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """Have a module in a folder that is on nobody's import path."""
    pytester.makeini(f"[pytest]\nremotegpu_python = {sys.executable}\n")
    pytester.mkdir("src")
    (pytester.path / "src" / "my_helper.py").touch()
    return pytester


def test_the_users_own_is_moved(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = project.path.parent / f"{project.path.name}-elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("PYTHONPATH", f"{elsewhere}{os.pathsep}{project.path / 'src'}")
    project.makepyfile(CHILD.format(before="pass"))
    run(project, "-p", "no:remotegpu").assert_outcomes(passed=1)
    before = (  # pytester itself puts the project first
        "here = pathlib.Path(__file__).parent; "
        "assert os.environ['PYTHONPATH'] == f'{here}:{here}/src'"
    )
    project.makepyfile(CHILD.format(before=before))
    run(project, FAR).assert_outcomes(passed=1)
    before += " + ':/of/its/own'"
    project.makepyfile(CHILD.format(before=before))
    run(project, OWN).assert_outcomes(passed=1)


def test_an_editable_install_is_on_it(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = project.path.parent / f"{project.path.name}-site"
    site.mkdir()
    mapping = {"my_helper": str(project.path / "src" / "my_helper.py")}
    text = textwrap.dedent(EDITABLE).format(mapping=mapping)
    Path(site, "sitecustomize.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(site))
    project.makepyfile(CHILD.format(before="pass"))
    run(project, FAR).assert_outcomes(passed=1)


def test_nothing_is_set_where_nothing_is_set_here(
    project: pytest.Pytester,
) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    project.makeini(f"[pytest]\nremotegpu_python = {sys.executable}\npythonpath = src\n")
    project.makepyfile("""
        import os
        import pytest
        import my_helper

        @pytest.mark.gpu
        def test_env(): assert "PYTHONPATH" not in os.environ
    """)
    command = [sys.executable, "-m", "pytest", FAR]
    done = subprocess.run(
        command, cwd=project.path, env=environ, capture_output=True, text=True, check=False
    )
    assert "1 passed" in done.stdout
