"""Which card is rented: what the option names, and what a mark does."""

from __future__ import annotations

import pytest

from loopback import LoopbackModal
from session.running import run, said

TEST = "import pytest\n\n@pytest.mark.gpu({mark})\ndef test_one(gpu): pass\n"


def rented(service: LoopbackModal) -> list[str]:
    return sorted(str(container.gpu) for container in service.containers)


@pytest.mark.parametrize(
    ("option", "mark", "card"),
    [
        ("modal:T4", "type='A100', min_memory_gib=60", "A100-80GB:1"),
        ("modal:A100-80GB", "type='A100'", "A100-80GB:1"),
        ("modal:h100!", "2, type='NVIDIA H100'", "H100!:2"),
    ],
)
def test_a_mark_names_what_several_types_are(
    pytester: pytest.Pytester, service: LoopbackModal, option: str, mark: str, card: str
) -> None:
    pytester.makepyfile(test_it=TEST.format(mark=mark))
    run(pytester, f"--remote={option}").assert_outcomes(passed=1)
    assert rented(service) == [card]


def test_what_a_mark_has_wrong_is_mended_in_the_mark(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """The option could not help: the mark stands above it."""
    pytester.makepyfile(test_it=TEST.format(mark="2, type='T4', min_capability=8.0"))
    result = run(pytester, "--remote=modal:H100")
    assert result.ret == 4
    text = said(result)
    assert "T4 has capability 7.5" in text
    assert 'what does: gpu(2, type="L4"), or A10' in text
    assert "--remote=modal:" not in text
    assert service.calls == []
    pytester.makepyfile(test_it=TEST.format(mark='2, type="L4", min_capability=8.0'))
    run(pytester, "--remote=modal:H100").assert_outcomes(passed=1)
    assert rented(service) == ["L4:2"]
