"""A session over a far side of Modal's shape: one request, and small pieces after it."""

from __future__ import annotations

import pytest

from stage import FAR, HERE, PASSED, Stage


@pytest.mark.timeout(60)
def test_session_over_calls(stage: Stage) -> None:
    """The files travel, results come back; nobody waits for a far side that isn't prompt."""
    (stage.path / "ballast.bin").write_bytes(bytes(3 * 2**20))
    (stage.path / "test_far.py").write_text(
        "import os\n"
        "import pytest\n"
        "pytestmark = pytest.mark.gpu\n"
        "def test_a():\n    assert os.path.getsize('ballast.bin') == 3 * 2**20\n"
        "def test_b(artifacts_dir):\n    (artifacts_dir / 'x').write_text('y')\n"
        "@pytest.mark.gpu(2)\n"
        "def test_c():\n    assert 'REMOTEGPU_WORKER' in os.environ\n"
    )
    kept = stage.path / "kept"
    played = stage.run_on("onerequest", f"--remote-artifacts={kept}")
    assert played.ret == 0, played.text
    assert [played.phases[id] for id in (*FAR, *HERE)] == [PASSED] * 5
    [artifact] = [path for path in kept.rglob("*") if path.is_file()]
    assert (artifact.name, artifact.read_text()) == ("x", "y")
