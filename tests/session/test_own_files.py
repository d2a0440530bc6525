"""What a session writes into the project is no part of what it sends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pytest_remotegpu import trees
from pytest_remotegpu.config import resolve

from .running import run, said

FAR = ("--remote=command:env PYTEST_REMOTEGPU_PRETEND_GPUS=1", "-o",
       f"remotegpu_python={sys.executable}")  # fmt: skip
LISTS = """
    import os
    import pytest

    @pytest.mark.gpu
    def test_lists(artifacts_dir):
        (artifacts_dir / "seen").write_text("\\n".join(sorted(os.listdir())))
"""


def seen(folder: Path) -> list[str]:
    (path,) = folder.glob("*/seen")
    return path.read_text().split()


@pytest.mark.timeout(180)
def test_neither_the_document_nor_the_artifacts_are_sent(pytester: pytest.Pytester) -> None:
    """A second session sends what the first has sent, and nothing more."""
    pytester.makepyfile(test_it=LISTS)
    pytester.path.joinpath("other.json").write_text("{}")
    out = pytester.path / "out [1]"
    options = (*FAR, "--remote-json=run.json", f"--remote-artifacts={out.name}")
    for _ in range(2):
        run(pytester, *options).assert_outcomes(passed=1)
        names = seen(out)
        assert "other.json" in names
        assert not {"run.json", out.name} & set(names)
    data = json.loads(Path("run.json").read_text(encoding="utf-8"))
    assert data["sent"]["files"] == 0
    text = said(run(pytester, *options, "--remote-plan"))
    assert "left out: run.json is where this session itself writes" in text
    run(pytester, *options, "-o", "remotegpu_include=run.json").assert_outcomes(passed=1)
    assert "run.json" in seen(out)


@pytest.mark.parametrize(
    ("given", "globs"),
    [
        ("run.json", ("sub/run.json",)),
        ("../run.json", ("run.json",)),
        ("../../run.json", ()),
        ("..", ()),
        (".", ("sub",)),
        ("/elsewhere/run.json", ()),
        ("a*.json", ("sub/a[*].json",)),
        (None, ()),
    ],
)
def test_what_of_it_is_in_the_project(
    tmp_path: Path, given: str | None, globs: tuple[str, ...]
) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    settings = resolve({"remote_json": given}, {}, {})
    assert trees.rules(settings, tmp_path, str(folder)).written == globs
    settings = resolve({"remote_json": given, "remote_rev": "HEAD"}, {}, {})
    assert trees.rules(settings, tmp_path, str(folder)).written == ()
