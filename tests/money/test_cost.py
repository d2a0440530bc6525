"""What far work costs: said before, refused above a cap, ended at it, and written down after."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from fakes import Far, OneRequest, report
from pytest_remotegpu import cost, spending
from pytest_remotegpu.backends.base import Price
from pytest_remotegpu.errors import FarSideError
from pytest_remotegpu.gpu import Shape
from pytest_remotegpu.protocol import events, orders
from session.running import CPU, run, said
from stage import FAR, HERE, Played, Stage

from .at_limit import hangs, is_deaf, judged

CAP = "the cost limit of $10.00 (--remote-max-cost) is reached"
ARGS = ("--remote-max-cost=10", "--junitxml=../j.xml")


def priced(stage: Stage, *lines: str) -> None:
    """Let the project say what GPUs cost; a dollar a second, unless told otherwise."""
    text = "\n    ".join(lines or ["scripted = 3600"])
    (stage.path / "pytest.ini").write_text(f"[pytest]\nremotegpu_prices =\n    {text}\n")


def serves(far: Far) -> None:
    """Run all tests."""
    far.greet()
    far.serve()


def amounts(line: str) -> list[float]:
    """Read the amounts of money in a line."""
    return [float(text) for text in re.findall(r"\$(\d+(?:\.\d+)?)", line)]


def line_of(played: Played, start: str) -> str:
    """Find the line that starts so."""
    [line] = [line for line in played.text.splitlines() if line.startswith(start)]
    return line


# said before


def test_the_most_that_a_run_can_cost_is_said_before_it_starts(stage: Stage) -> None:
    priced(stage, "scripted = 2.50")
    played = stage.run(serves, args=("--remote-run-timeout=1800",))
    assert played.ret == 0, played.text
    line = "remote: cost: at most $1.26, $2.50 an hour for 1800 s and its end"
    assert line in played.text
    assert played.text.index(line) < played.text.index("test_far.py .")


def test_without_a_limit_it_is_said_that_there_is_none(stage: Stage) -> None:
    priced(stage, "scripted = 2.50")
    (stage.path / "test_far.py").write_text("import pytest\n@pytest.mark.gpu(2)\ndef test_a(): 1\n")
    played = stage.run(serves)
    assert "remote: cost: $5.00 an hour, without a limit" in played.text


def test_what_costs_nothing_that_anybody_knows_is_not_talked_about(stage: Stage) -> None:
    played = stage.run(serves, args=("--remote-run-timeout=60",))
    assert played.ret == 0
    assert "cost:" not in played.text
    assert "$" not in played.text


@pytest.mark.parametrize("args", [(), ("--remote-plan",)], ids=["run", "plan"])
def test_of_a_machine_that_is_rented_an_unknown_price_is_said(
    stage: Stage, args: tuple[str, ...]
) -> None:
    """Tests without a mark run without a card, and the price of a card does not stand for that."""
    (stage.path / "test_far.py").write_text("def test_a(): pass\n")
    played = stage.run_on("onerequest", "--remote-all", *args)
    assert played.ret == 0, played.text
    words = "cost: not known: no price is known for no GPU; give one in the ini option"
    assert played.text.count(words) == (1 if args else 2)
    capped = stage.run_on("onerequest", "--remote-all", "--remote-max-cost=1", *args)
    assert "--remote-max-cost=1: no price is known for no GPU" in capped.text
    assert capped.ret == (0 if args else pytest.ExitCode.USAGE_ERROR)


def test_the_plan_says_it_too(stage: Stage) -> None:
    priced(stage, "scripted = 2.50")
    played = stage.run(serves, args=("--remote-run-timeout=1800", "--remote-plan"))
    assert "\ncost: at most $1.26, $2.50 an hour for 1800 s and its end\n" in played.text
    assert re.search(r"prices +\['scripted = 2.50'\] +\(ini file, remotegpu_prices\)", played.text)
    assert played.workers == 0


# refused


def refused(played: Played) -> str:
    """See that nothing ran, here or there, and give the error."""
    assert played.ret == pytest.ExitCode.USAGE_ERROR, played.text
    assert played.workers == 0
    assert played.starts == []
    return line_of(played, "ERROR:")


def test_a_run_that_may_cost_more_than_the_cap_is_refused(stage: Stage) -> None:
    priced(stage, "scripted = 36")
    (stage.path / "test_two.py").write_text("import pytest\n@pytest.mark.gpu(2)\ndef test_z(): 1\n")
    error = refused(stage.run(args=("--remote-run-timeout=600", "--remote-max-cost=17.5")))
    assert error.startswith(
        "ERROR: --remote-max-cost=17.5: this run may cost up to $18.24: 2 workers at $108.00 an "
        "hour together, for the 600 s of the run limit; "
    )
    for way in ("a shorter --remote-run-timeout (575 s)", "fewer workers", "cheaper card"):
        assert way in error
    assert stage.run(serves, args=("--remote-run-timeout=575", "--remote-max-cost=17.5")).ret == 0


def test_the_plan_says_why_it_would_be_refused(stage: Stage) -> None:
    priced(stage, "scripted = 36")
    played = stage.run(args=("--remote-run-timeout=600", "--remote-max-cost=5", "--remote-plan"))
    assert played.ret == 0
    assert "\ncost: refused: --remote-max-cost=5: this run may cost up to $6.08" in played.text


class Odd(OneRequest):
    """Names a price that is none."""

    def __init__(
        self, price: float | FarSideError | None, after: float = 0.0, ending: float = 0.0
    ) -> None:
        super().__init__()
        self._price, self._after, self._ending = price, after, ending

    def price(self, shape: Shape) -> Price | None:  # noqa: ARG002  the same for all
        """Give the price, or fail."""
        if isinstance(self._price, FarSideError):
            raise self._price
        return Price(self._price, "2026-01-01", after=self._after, ending=self._ending)


@pytest.mark.parametrize(
    "backend",
    [
        Odd(math.nan),
        Odd(math.inf),
        Odd(-1.0),
        Odd(None),
        Odd(1.0, math.nan),
        Odd(1.0, 1.0, math.nan),
        Odd(FarSideError("down")),
    ],
)
def test_a_backend_whose_price_is_none_has_none(backend: Odd) -> None:
    assert spending.rate_of(backend, {}, Shape()) is None
    own = spending.rate_of(backend, {"onerequest": 2.0}, Shape())
    assert own is not None
    assert own.usd_per_hour == 2.0


def test_time_after_the_end_counts_as_well() -> None:
    rate = spending.rate_of(Odd(3600.0, 60.0, 4.0), {}, Shape())
    assert rate == cost.Rate(3600.0, "2026-01-01", "", 60.0, 4.0)


@pytest.mark.parametrize("price", [3600.0, None])
def test_time_after_the_end_counts_at_the_users_price_too(price: float | None) -> None:
    """Whether or not the backend knows one."""
    own = spending.rate_of(Odd(price, 60.0, 4.0), {"onerequest": 36.0}, Shape())
    assert own == cost.Rate(36.0, source=cost.OWN, after=60.0, ending=4.0)


@pytest.mark.parametrize(
    ("shape", "prices"),
    [
        (Shape(1, ("T4",)), {"T4": 3600.0}),
        (Shape(1), {"modal:T4": 3600.0}),
        (Shape(0), {"modal": 3600.0}),
    ],
)
def test_a_container_is_paid_for_to_its_end_whoever_names_its_price(
    shape: Shape,
    prices: dict[str, float],
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The user for the card, for all of Modal, or for a container without a card."""
    monkeypatch.delenv("CI")  # which leaves nothing warm
    lines = "\n    ".join(f"{name} = {usd:g}" for name, usd in prices.items())
    pytester.makeini(f"[pytest]\nremotegpu_prices =\n    {lines}\n")
    kinds = f"type={list(shape.type)}" if shape.type else ""
    mark = f"@pytest.mark.gpu({kinds})" if shape.count else ""
    pytester.makepyfile(f"import pytest\n{mark}\ndef test_one(): pass\n")
    args = ["--remote=modal:T4", "--remote-plan", "--remote-run-timeout=28"]
    result = run(pytester, *args, *([] if shape.count else ["--remote-all"]))
    # a dollar a second: 28 of the limit, 12 of the end, 60 without work
    assert "cost: at most $100.00," in said(result)
    # and 2 without work where nothing is to stay
    result = run(pytester, *args, "--remote-fresh", *([] if shape.count else ["--remote-all"]))
    assert "cost: at most $42.00," in said(result)


def test_a_cap_needs_a_price(stage: Stage) -> None:
    priced(stage, "H100 = 3.95")
    error = refused(stage.run(args=("--remote-max-cost=5",)))
    assert "no price is known for 1 GPU; give one in the ini option remotegpu_prices" in error


def test_a_cap_that_pays_for_no_test_is_refused(stage: Stage) -> None:
    priced(stage)
    error = refused(stage.run(args=("--remote-max-cost=5",)))
    assert "1 worker at $3600.00 an hour together cost $8.00 for starting and ending" in error


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e3", "cheap", "", "1,5", "0x10"])
def test_a_cap_that_is_no_amount_is_refused(pytester: pytest.Pytester, value: str) -> None:
    result = pytester.runpytest_inprocess(CPU, f"--remote-max-cost={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    wrong = "0 lets nothing run" if value == "0" else f"{value!r} is no amount of USD, such as 2.50"
    assert f"ERROR: --remote-max-cost = {wrong}" in result.stderr.str()


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("H100", " has 'H100'; a line reads H100 = 3.95"),
        ("= 3", " has '= 3'; a line reads"),
        ("H100 = much", ": H100 = 'much' is no amount of USD"),
        ("H100 = -1", ": H100 = '-1' is no amount"),
        ("H100 = nan", ": H100 = 'nan' is no amount"),
        ("H100 = inf", ": H100 = 'inf' is no amount"),
        ("H100 =", ": H100 = '' is no amount"),
        ("H100 = 1\n    H100 = 2", " has two prices for 'H100'"),
    ],
)
def test_a_price_that_is_none_is_refused(pytester: pytest.Pytester, line: str, wrong: str) -> None:
    pytester.makeini(f"[pytest]\nremotegpu_prices =\n    {line}\n")
    result = pytester.runpytest_inprocess(CPU)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: remotegpu_prices{wrong}" in result.stderr.str()


# ended


def capped(played: Played, *, second: str) -> None:
    """See that the first test passed, the second failed, and the third has not run."""
    judged(played, CAP, second=second)
    spent, *_ = amounts(line_of(played, "cost: "))
    assert 1.0 < spent <= 10


def test_the_running_test_is_ended_at_the_cap(stage: Stage) -> None:
    priced(stage)
    played = stage.run(hangs(CAP), args=ARGS)
    assert "remote: cost: at most $10.00 (--remote-max-cost), $3600.00 an hour" in played.text
    capped(played, second=f"timed out: {CAP}")
    written = (stage.path.parent / "j.xml").read_text()
    assert written.count("<testcase") == 5
    assert f"not run: {CAP}" in written


def test_a_worker_that_is_deaf_is_given_up_before_it_costs_more(stage: Stage) -> None:
    priced(stage)
    played = stage.run(is_deaf, args=ARGS)
    capped(played, second=f"{CAP}, and its worker did not say what it did")


def test_nothing_starts_once_the_cap_is_reached(stage: Stage) -> None:
    """In order, with ``--maxfail``: what ran before has left too little for the next shape."""
    priced(stage, "scripted = 1800")
    (stage.path / "test_far.py").rename(stage.path / "test_a_far.py")
    (stage.path / "test_here.py").write_text("import time\ndef test_one(): time.sleep(2)\n")
    (stage.path / "test_z_far.py").write_text(
        "import pytest\n@pytest.mark.gpu(2)\ndef test_z(): raise AssertionError\n"
    )
    opened = []

    def works(far: Far) -> None:
        opened.append(far.order.gpus)
        serves(far)

    played = stage.run(works, args=("--remote-max-cost=12.5", "--maxfail=9"))
    assert played.verdict("test_a_far.py::test_c") == "passed"
    assert played.verdicts(("test_here.py::test_one",)) == ["passed"]
    assert opened == [1]
    assert "(--remote-max-cost) is reached" in played.texts["test_z_far.py::test_z"]
    assert played.ret == pytest.ExitCode.TESTS_FAILED


def test_the_worker_is_told_while_a_local_test_runs(stage: Stage) -> None:
    priced(stage)
    told = stage.waits_here()

    def script(far: Far) -> None:
        far.greet()
        far.say(events.Started(0), report(0, "setup"))
        assert isinstance(far.message(), orders.Finish)
        stop = far.message()
        told.touch()
        far.say(events.Crashed(0, stop.limit, b"", b"", b"", timeout=True), events.Ended())

    played = stage.run(script, args=ARGS)
    assert played.verdicts(HERE) == ["passed"] * 2
    assert played.texts[FAR[0]] == CAP
    assert played.ret == pytest.ExitCode.TESTS_FAILED


def test_a_cap_that_is_not_reached_changes_nothing(stage: Stage) -> None:
    priced(stage, "scripted = 1")
    played = stage.run(serves, args=("--remote-max-cost=1",))
    assert played.ret == pytest.ExitCode.OK
    assert "is reached" not in played.text


@pytest.mark.parametrize("args", [(), ("-n1",)], ids=["alone", "xdist"])
def test_a_real_worker_ends_its_test_at_the_cap(
    args: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    if args:
        pytest.importorskip("xdist")
    pytester.makeini("[pytest]\nremotegpu_prices = local:cpu = 3600\n")
    pytester.makepyfile("""
        import time
        import pytest

        @pytest.mark.gpu
        def test_before(): pass

        @pytest.mark.gpu
        def test_long():
            print("said before the end")
            time.sleep(60)

        @pytest.mark.gpu
        def test_after(): pass

        def test_here(): pass
    """)
    began = time.monotonic()
    result = run(pytester, CPU, "--remote-max-cost=16", "-rA", "--junitxml=j.xml", *args)
    assert time.monotonic() - began < 35
    text = said(result)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2, failed=1, errors=1)
    assert "cost: at most $16.00 (--remote-max-cost), $3600.00 an hour" in text
    assert "timed out: the cost limit of $16.00 (--remote-max-cost) is reached" in text
    assert "said before the end" in text
    assert "not run: the cost limit of $16.00 (--remote-max-cost) is reached" in text
    tree = ET.parse(pytester.path / "j.xml")  # noqa: S314  our own file
    assert len(list(tree.iter("testcase"))) == 4
    found = costs(pytester.path / "j.xml")
    assert 3 < found["test_long"] <= found[""] <= 16


# written down


def costs(path: Path) -> dict[str, float]:
    """Read the costs in a junit file: of each test by its name, of the whole under no name."""
    root = ET.parse(path)  # noqa: S314  our own file
    found = {}
    for case in root.iter("testcase"):
        for entry in case.iter("property"):
            if entry.get("name") == "remotegpu_cost_usd":
                found[str(case.get("name"))] = float(str(entry.get("value")))
    [suite] = root.iter("testsuite")
    for entry in suite.findall("./properties/property"):
        name = str(entry.get("name"))
        if name.startswith("remotegpu_cost_usd"):
            found[name.removeprefix("remotegpu_cost_usd").lstrip(".")] = float(
                str(entry.get("value"))
            )
    return found


TESTS = (
    "import time\nimport pytest\npytestmark = pytest.mark.gpu\n"
    "def test_a(): time.sleep(0.3)\n"
    "def test_b(): assert 0\n"
    "@pytest.mark.gpu(2)\ndef test_c(): time.sleep(0.2)\n"
)


def adds_up(found: dict[str, float], kind: str) -> None:
    """See that a session of these tests, at a dollar an hour, has costs that are right."""
    workers = {name: cost for name, cost in found.items() if name.startswith(f"{kind}-")}
    tests = {name: cost for name, cost in found.items() if name.startswith("test_")}
    assert set(tests) == {"test_a", "test_b", "test_c"}
    assert tests["test_a"] >= 0.3 / 3600
    assert tests["test_c"] >= 2 * 0.2 / 3600
    assert sum(workers.values()) == pytest.approx(found[""], abs=1e-5)
    assert sum(tests.values()) < found[""]
    assert len(found) == len(workers) + len(tests) + 1


@pytest.mark.timeout(60)
def test_a_backend_that_costs_money(stage: Stage) -> None:
    """Summary and junit file have it, and it adds up."""
    (stage.path / "test_far.py").write_text(TESTS)
    played = stage.run_on("onerequest", "--junitxml=../j.xml", "--remote-run-timeout=360")
    assert played.ret == 1, played.text
    adds_up(costs(stage.path.parent / "j.xml"), "onerequest")
    assert "\n2 GPUs   1 worker   1 test   0.2" in played.text
    lines = re.findall(r"\n  onerequest-\d   (\d) tests?   \d+\.\d s   \$(\S+)(?=\n)", played.text)
    assert sorted(tests for tests, _ in lines) == ["1", "2"]
    assert [usd for _, usd in lines] == sorted((usd for _, usd in lines), reverse=True)
    assert re.search(r" s   \$0\.000\d   longest 0\.2\d s test_far\.py::test_c\n", played.text)
    assert re.fullmatch(
        r"cost: about \$\S+ \(tests \S+, start \S+, idle \S+\) of at most \$0\.307, "
        r"by prices of 2026-01-01",
        line_of(played, "cost: "),
    )


def test_what_rented_machines_may_cost_is_said_with_q_as_well(stage: Stage) -> None:
    (stage.path / "test_far.py").write_text(TESTS)
    played = stage.run_on("onerequest", "-q", "--remote-run-timeout=360")
    assert "remote: cost: at most $0.307, $3.00 an hour for 360 s and its end" in played.text
    assert "on 1 GPU" not in played.text.partition("cost:")[0]


def test_under_xdist_the_costs_of_all_processes_are_one_sum(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    pytester.makeini("[pytest]\nremotegpu_prices = local = 1\n")
    pytester.makepyfile(test_far=TESTS)
    args = ("-n2", "--junitxml=j.xml", "--remote-run-timeout=360")
    result = run(pytester, CPU, *args)
    result.assert_outcomes(passed=2, failed=1)
    adds_up(costs(pytester.path / "j.xml"), "local")
    # one for each of the shapes and one that collects, in each process
    assert "remote: cost: at most $0.818, $8.00 an hour for 360 s and its end" in said(result)
    assert re.search(r"\ncost: about \S+ \(.*\) of at most \$0\.818, by", said(result))
    refused = run(pytester, CPU, *args, "--remote-max-cost=0.5")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    assert "this run may cost up to $0.818: 6 workers at $8.00 an hour together" in said(refused)


def test_costs_of_a_process_that_was_lost_are_said_to_be_missing(
    pytester: pytest.Pytester,
) -> None:
    pytest.importorskip("xdist")
    pytester.makeini("[pytest]\nremotegpu_prices = local = 1\n")
    pytester.makepyfile(
        test_a="import pytest\n@pytest.mark.gpu\ndef test_a(): pass\ndef test_b(): pass\n",
        test_z="import os\ndef test_z(): os._exit(3)\n",
    )
    result = run(pytester, CPU, "-n2", "--dist=loadfile", "--max-worker-restart=0")
    assert result.ret == 1
    text = said(result)
    if "\ncost: " in text:
        assert re.search(r"note: costs are incomplete: gw\d did not live to tell theirs\n", text)


def test_the_users_own_price_stands_above_the_backends(stage: Stage) -> None:
    priced(stage, "onerequest = 7.2")
    (stage.path / "test_far.py").write_text("import pytest\n@pytest.mark.gpu\ndef test_a(): pass\n")
    played = stage.run_on("onerequest", "--remote-run-timeout=100")
    assert "cost: at most $0.216, $7.20 an hour for 100 s and its end" in played.text
    assert line_of(played, "cost: about").endswith("by prices (ini file, remotegpu_prices)")


def test_a_far_side_that_lies_about_durations_is_charged_by_the_clock_here(stage: Stage) -> None:
    priced(stage)

    def lies(far: Far) -> None:
        far.greet()
        for place in range(3):
            phases = [report(place, when, duration=1e9) for when in ("setup", "call", "teardown")]
            far.say(events.Started(place), *phases, events.Finished(place))
        far.end()

    played = stage.run(lies, args=("--junitxml=../j.xml",))
    found = costs(stage.path.parent / "j.xml")
    assert sum(found[name] for name in ("test_a", "test_b", "test_c")) <= found[""] + 1e-5
    assert found[""] < 30
    assert played.ret == 0


def test_a_worker_without_tests_costs_as_well(stage: Stage) -> None:
    priced(stage)

    def breaks_down(far: Far) -> None:
        far.greet()
        time.sleep(0.2)

    played = stage.run(breaks_down)
    assert played.ret == 1
    line = line_of(played, "cost: ")
    spent, tests, start, idle = amounts(line)[:4]
    assert spent == pytest.approx(start, abs=0.01)
    assert (tests, idle) == (0, 0)
    assert spent > 0.2 * played.workers


KILLED = """
    import os, time, pytest

    @pytest.mark.gpu
    def test_before(): pass

    def test_kills():
        time.sleep(2.5)
        os._exit(3)

    @pytest.mark.gpu
    def test_after(): pass
"""


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("--remote-max-cost=16", r"the cost limit of \$16.00 \(--remote-max-cost\) is reached"),
        ("--remote-run-timeout=10", r"the run limit of 10 s \(--remote-run-timeout\) is reached"),
        ("--remote-max-cost=1000", ""),
    ],
)
def test_a_process_in_the_place_of_a_dead_one_has_no_share_of_its_own(
    limit: str, words: str, pytester: pytest.Pytester
) -> None:
    """What the dead one may have cost, its worker's end included, is gone from that."""
    pytest.importorskip("xdist")
    pytester.makeini("[pytest]\nremotegpu_prices = local:cpu = 3600\n")
    pytester.makepyfile(KILLED)
    result = run(pytester, CPU, "-n1", limit, "-rA")
    text = said(result)
    assert "replacing crashed worker gw0" in text
    if words:
        result.assert_outcomes(passed=1, failed=1, errors=1)
        assert re.search(f"not run: {words}", text), text
    else:
        result.assert_outcomes(passed=2, failed=1)


@pytest.mark.parametrize("more", [(), ("--max-worker-restart=0",)], ids=["replaced", "alone"])
def test_what_a_dead_process_had_spent_is_in_every_sum(
    more: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    """Up to its end, also where nobody comes in its place; what the tests say is left alone."""
    pytest.importorskip("xdist")
    pytester.makeini("[pytest]\nremotegpu_prices = local:cpu = 3600\n")
    pytester.makeconftest("""
        def pytest_runtest_logreport(report):
            assert not hasattr(report, "remotegpu_spent")
    """)
    pytester.makepyfile(KILLED)
    result = run(pytester, CPU, "-n1", "--remote-json=run.json", "--junitxml=j.xml", *more)
    result.assert_outcomes(passed=1 if more else 2, failed=1)
    data = json.loads(pytester.path.joinpath("run.json").read_text())
    spent = {worker["name"]: worker["cost_usd"] for worker in data["workers"]}
    assert len(spent) == (1 if more else 2)
    assert 2.5 < spent["local-gw0-1"] < 30
    assert data["cost"]["total"] == pytest.approx(sum(spent.values()))
    found = costs(pytester.path / "j.xml")
    assert found[""] == pytest.approx(sum(spent.values()), abs=1e-5)
    [line] = [line for line in said(result).splitlines() if line.startswith("cost: about")]
    assert amounts(line)[0] == pytest.approx(sum(spent.values()), abs=0.01)
    assert "note: costs of gw0, which died, count until then, as far as it had told them" in said(
        result
    )


def test_workers_that_collect_are_in_what_a_run_may_cost(pytester: pytest.Pytester) -> None:
    """One collects the file, on a GPU, and then runs the test."""
    pytester.makeini("[pytest]\nremotegpu_prices = local:cpu = 3600\n")
    pytester.makepyfile("import pytest\n\n@pytest.mark.gpu\ndef test_one(): pass\n")
    far = ("-o", "remotegpu_collect=far")
    result = run(pytester, CPU, *far, "--remote-run-timeout=60")
    result.assert_outcomes(passed=1)
    assert "cost: at most $68.00, $3600.00 an hour for 60 s and its end" in said(result)
