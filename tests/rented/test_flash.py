"""FlashAttention-2 runs on no T4: which card its tests get, and what is refused."""

from __future__ import annotations

import json

import pytest

from loopback import LoopbackModal
from session.running import run, said

TEST = "\nimport pytest\n\n@pytest.mark.gpu{mark}\ndef test_one(): pass\n"
SURELY = "import flash_attn" + TEST
SKIPS = "import pytest\nfa = pytest.importorskip('flash_attn')" + TEST
TRIES = "try:\n    import flash_attn\nexcept ImportError:\n    flash_attn = None" + TEST
HELPED = "import helper" + TEST
PLAIN = "import pytest\n\n@pytest.mark.gpu\ndef test_plain(): pass\n"


@pytest.fixture(autouse=True)
def flash(pytester: pytest.Pytester) -> None:
    """Have the package, and a module of the project that imports it."""
    pytester.mkpydir("flash_attn")
    pytester.makepyfile(helper="from flash_attn import bert_padding as _")
    pytester.path.joinpath("flash_attn", "bert_padding.py").touch()


def rented(service: LoopbackModal) -> list[str]:
    return sorted(str(container.gpu) for container in service.containers)


@pytest.mark.parametrize(
    ("option", "source", "mark", "cards"),
    [
        ("modal", SURELY, "", "L4:1"),
        ("modal:T4,L4", SKIPS, "", "L4:1"),
        ("modal:T4,L4", TRIES, "", "L4:1"),
        ("modal:T4,L4", HELPED, "", "L4:1"),
        ("modal:H100", SURELY, "(type=['T4', 'L4'])", "L4:1"),
    ],
)
def test_it_gets_a_card_that_does(
    pytester: pytest.Pytester,
    service: LoopbackModal,
    option: str,
    source: str,
    mark: str,
    cards: str,
) -> None:
    """Whatever the option or the mark would take as well."""
    pytester.makepyfile(test_it=source.format(mark=mark))
    result = run(pytester, f"--remote={option}")
    result.assert_outcomes(passed=1)
    assert rented(service) == [cards]
    result.stdout.fnmatch_lines(["remote: 1 test on 1 GPU (*capability 8.0 or newer)"])


def test_others_get_what_they_would(pytester: pytest.Pytester, service: LoopbackModal) -> None:
    pytester.makepyfile(test_flash=SURELY.format(mark=""), test_plain=PLAIN)
    run(pytester, "--remote=modal").assert_outcomes(passed=2)
    assert rented(service) == ["L4:1", "T4:1"]


@pytest.mark.parametrize(
    "args",
    [(), ("-o", "remotegpu_conftest=far"), ("-o", "remotegpu_collect=here")],
    ids=["far", "far-conftests", "here"],
)
def test_tests_without_a_mark_go_along(
    pytester: pytest.Pytester, service: LoopbackModal, args: tuple[str, ...]
) -> None:
    """Where all are shipped, there is no container of its own for those, nor for their files."""
    pytester.makepyfile(test_flash=SURELY.format(mark=""), test_more="def test_more(): pass")
    run(pytester, "--remote=modal", "--remote-all", *args).assert_outcomes(passed=2)
    assert rented(service) == ["L4:1"]


def test_alone_they_run_where_they_were_collected(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    """None that is marked is selected, and the container is there."""
    pytester.makepyfile(test_flash=SURELY.format(mark=""), test_more="def test_more(): pass")
    result = run(pytester, "--remote=modal", "--remote-all", "-k", "more", "--remote-json=run.json")
    result.assert_outcomes(passed=1, deselected=1)
    assert rented(service) == ["L4:1"]
    (worker,) = json.loads((pytester.path / "run.json").read_text())["workers"]
    assert worker["cost_usd"] > 0


def test_no_further_container_where_all_types_do(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(test_flash=SURELY.format(mark=""), test_plain=PLAIN)
    run(pytester, "--remote=modal:L4,A10").assert_outcomes(passed=2)
    assert len(service.containers) == 1


@pytest.mark.parametrize("source", [SURELY, SKIPS])
def test_it_is_refused_where_no_type_does(
    pytester: pytest.Pytester, service: LoopbackModal, source: str
) -> None:
    pytester.makepyfile(test_it=source.format(mark=""))
    result = run(pytester, "--remote=modal:T4")
    assert result.ret == 4
    text = said(result)
    assert "test_it.py imports flash_attn: " in text
    assert "what does: --remote=modal:L4" in text
    assert service.calls == []


def test_a_mark_that_names_none_that_does_is_mended_itself(
    pytester: pytest.Pytester, service: LoopbackModal
) -> None:
    pytester.makepyfile(test_it=SURELY.format(mark="(type='T4')"))
    result = run(pytester, "--remote=modal:H100")
    assert result.ret == 4
    assert 'FlashAttention-2 needs 8.0); what does: gpu(type="L4"), or A10' in said(result)
    assert service.calls == []


@pytest.mark.parametrize(
    ("source", "where"), [(TRIES, ""), (HELPED, " in helper.py"), (PLAIN, " in conftest.py")]
)
def test_where_nobody_can_be_sure_it_is_only_told(
    pytester: pytest.Pytester, service: LoopbackModal, source: str, where: str
) -> None:
    pytester.makepyfile(test_it=source.format(mark=""))
    if "conftest" in where:
        pytester.makeconftest("import flash_attn")
    result = run(pytester, "--remote=modal:T4")
    result.assert_outcomes(passed=1)
    assert rented(service) == ["T4:1"]
    result.stdout.fnmatch_lines(
        [f"remote: test_it.py imports flash_attn{where}: *T4 has capability 7.5*"]
    )
