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
    result = run(pytester, "--remote=modal:H100", *COLLECTS_HERE)
    assert result.ret == 4
    text = said(result)
    assert "T4 has capability 7.5" in text
    assert 'what does: gpu(2, type="L4"), or A10' in text
    assert "--remote=modal:" not in text
    assert service.calls == []
    pytester.makepyfile(test_it=TEST.format(mark='2, type="L4", min_capability=8.0'))
    run(pytester, "--remote=modal:H100").assert_outcomes(passed=1)
    assert rented(service) == ["L4:2"]


COLLECTS_HERE = ("-o", "remotegpu_collect=here")
"""With these nothing is rented to find out which tests there are."""
UNFIT = """
    import pytest

    @pytest.mark.gpu
    def test_fits(): pass

    @pytest.mark.gpu(9)
    def test_many(): pass

    @pytest.mark.gpu(type="X99")
    @pytest.mark.parametrize("number", range(3))
    def test_unknown(number): pass

    @pytest.mark.gpu(min_memory_gib=9999)
    @pytest.mark.parametrize("number", range(2))
    def test_large(number): pass
"""


@pytest.mark.parametrize("more", [[], [*COLLECTS_HERE], [*COLLECTS_HERE, "-n2"]], ids=str)
def test_a_mark_that_nothing_meets_is_found_by_the_test(
    pytester: pytest.Pytester, service: LoopbackModal, more: list[str]
) -> None:
    """Each such thing is said once, and where."""
    if "-n2" in more:
        pytest.importorskip("xdist")
    pytester.makepyfile(test_it=UNFIT)
    result = run(pytester, "--remote=modal:T4", *more)
    assert result.ret == 4
    text = said(result)
    assert "test_it.py::test_many: 9 GPUs asked for, and T4 has at most 8" in text
    assert "test_it.py::test_unknown[0] and 2 more tests: gpu(type='X99') names a card" in text
    assert "test_it.py::test_large[0] and 1 more test: 1 GPU (at least 9999 GiB) asked for" in text
    assert "test_fits" not in text
    assert bool(service.calls) == (not more)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("modal:", "--remote=modal: has nothing behind its colon; write --remote=modal (is a"),
        ("modal:H100:2,L4", "gpu(2), and the option reads --remote=modal:H100,L4"),
        ("modal:T4 L4", "have commas between them: --remote=modal:T4,L4"),
        ("modal:A100 80GB", "did you mean A100-80GB"),
        ("modal:H100!!", "did you mean H100! or H100?"),
        ("modal:A100-80gb!", "only H100! has a !: did you mean A100-80GB?"),
        ("modal:T4,", "has a comma with no type beside it"),
        ("modal:" + ",".join(["T4"] * 1000 + ["T5"]), "... names 'T5', which is no GPU of Modal's"),
        ("modal:\uff344", "did you mean T4"),
        ("T4", "there is no backend 'T4'; *a type of card stands behind one, as in modal:T4"),
    ],
)
def test_near_misses_are_told_before_anything_is_sent(
    pytester: pytest.Pytester, service: LoopbackModal, option: str, words: str
) -> None:
    pytester.makepyfile(test_it=TEST.format(mark=""))
    result = run(pytester, f"--remote={option}")
    assert result.ret == 4
    assert all(part in said(result) for part in words.split("*"))
    assert len(result.stderr.str()) < 1000
    assert service.requests == []


def test_many_names_of_one_type(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    pytester.makepyfile(test_it=TEST.format(mark=""))
    option = ",".join(["T4", " t4", "t4 "] * 300)
    run(pytester, f"--remote=modal:{option}").assert_outcomes(passed=1)
    assert rented(service) == ["T4:1"]
