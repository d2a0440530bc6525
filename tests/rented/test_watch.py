"""The loop of ``--remote-watch`` with rented machines: one container for all runs, and its cost."""

from __future__ import annotations

import pytest

from loopback import LoopbackModal
from session.running import LONG, Started, until

pytest.importorskip("watchfiles", reason="needs: pip install pytest-remotegpu[watch]")

T4 = "--remote=modal:T4"
WAITING = "watch: waiting for changes"
TEST = "import pytest\n\n@pytest.mark.gpu\ndef test_one(): assert {}\n"


@pytest.mark.timeout(240)
def test_runs_share_a_container_and_tell_their_price(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    path = pytester.makepyfile(test_a=TEST.format(1))
    with Started(pytester, T4, "--remote-watch") as loop:
        assert until(lambda: WAITING in loop.text, 100), loop.text
        path.write_text(TEST.format(0))
        assert until(lambda: loop.text.count(WAITING) > 1, 100), loop.text
        loop.process.send_signal(2)
        assert loop.end() == 1
        assert "watch: test_a.py changed: test_a.py\n" in loop.text
        assert loop.text.count("remote: cost: at most $") == 2
        assert f"{WAITING}, Ctrl-C ends (1 still failing, $0.0" in loop.text
    assert len(service.deploys) == 1
    assert len(service.calls) == 2
    assert len(service.containers) == 1


@pytest.mark.timeout(240)
def test_ctrl_c_ends_what_is_rented(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    begun, ended = pytester.path / "has-begun", pytester.path / "torn-down"
    text = LONG
    for path in (begun, ended):
        text = text.replace(f'pathlib.Path("{path.name}")', f"pathlib.Path({str(path)!r})")
    pytester.makepyfile(test_long=text)
    with Started(pytester, T4, "--remote-watch") as loop:
        assert until(begun.exists, 100), loop.text
        loop.process.send_signal(2)
        assert loop.end() == 2
        assert until(ended.exists, 10), loop.text
    assert len(service.calls) == 1
