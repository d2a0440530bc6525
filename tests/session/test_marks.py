"""The ``gpu`` mark on tests, classes, modules and parameters: how marks merge, what is refused.

What is refused names the test and the valid values, and is refused before any test runs; where this
side collects, before any process starts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .running import CPU, FakePython, run, said

COLLECTS_HERE = ("-o", "remotegpu_collect=here")
"""For tests that see that nothing is started: whoever collects there has to be."""
NAMES = (
    "count, type, min_memory_gib, min_capability, launcher, gpus_per_rank, timeout, isolate, env"
)


@pytest.mark.parametrize(
    ("mark", "named"),
    [
        ("gpu(cuont=2)", ["'cuont'", NAMES]),
        ("gpu(2, 4)", ["one positional argument", "(2, 4)"]),
        ("gpu(2, count=2)", ["count twice"]),
        ("gpu(0)", ["gpu(count=...)", "from 1 to", "not 0"]),
        ("gpu('2')", ["gpu(count=...)", "not '2'"]),
        ("gpu(count=True)", ["gpu(count=...)", "not True"]),
        ("gpu(type=3)", ["gpu(type=...)", "a GPU name or a list of names", "not 3"]),
        ("gpu(min_memory_gib='40GB')", ["in GiB", "'40GB'"]),
        ("gpu(min_capability='sm80')", ["such as 8.0", "'sm80'"]),
        ("gpu(launcher=None)", ["name of a launcher", "None"]),
        ("gpu(gpus_per_rank=0)", ["from 1 to", "not 0"]),
        ("gpu(timeout=-1)", ["seconds above 0", "not -1"]),
        ("gpu(isolate=1)", ["True or False", "not 1"]),
        ("gpu(env={'A': 1})", ["dict of variable names", "{'A': 1}"]),
        ("gpu(type='A100:2')", ["'A100:2'", "gpu(count=2, type='A100')"]),
        ("gpu(min_capability=90)", ["not 90", "for 90 write 9.0"]),
        ("gpu(timeout=float('nan'))", ["seconds above 0", "not nan"]),
        ("gpu(env={'A': chr(0)})", ["A can't have the value"]),
        ("gpu(env={'CUDA_VISIBLE_DEVICES': '0'})", ["is set by the plugin itself"]),
        ("gpu(2, launcher='torch')", ["gpu(launcher=...)", "'torchrun'", "not 'torch'"]),
        ("gpu(2, launcher='srun')", ["not 'srun'; srun is planned, and not built yet"]),
        ("gpu(2, launcher='spawn')", ["starts its own processes needs no launcher: gpu(count=N)"]),
        ("gpu(gpus_per_rank=2)", ["gpus_per_rank=2) needs a launcher", "launcher='torchrun'"]),
        ("gpu(512, launcher='torchrun', gpus_per_rank=4)", ["are 2048 GPUs"]),
    ],
)
def test_an_ill_formed_mark(
    mark: str, named: list[str], pytester: pytest.Pytester, tmp_path: Path
) -> None:
    fake = FakePython(tmp_path)
    pytester.makepyfile(f"""
        import pytest

        def test_here(): raise SystemExit("it was run")

        class TestIt:
            @pytest.mark.{mark}
            def test_far(self): raise SystemExit("it was run")
    """)
    own = (*COLLECTS_HERE, "-o", f"remotegpu_python={fake.path}")
    result = pytester.runpytest_inprocess(CPU, *own)
    text = said(result)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "::TestIt::test_far: gpu(" in text
    assert [part for part in named if part not in text] == []
    assert "it was run" not in text
    assert not fake.started


@pytest.mark.parametrize("collects", ["far", "here"])
def test_all_ill_formed_marks_are_named_at_once_wherever_they_stand(
    pytester: pytest.Pytester, tmp_path: Path, collects: str
) -> None:
    fake = FakePython(tmp_path)
    pytester.makepyfile(
        test_module="""
            import pytest
            pytestmark = pytest.mark.gpu(cuont=1)
            def test_one(): pass
        """,
        test_others="""
            import pytest

            @pytest.mark.gpu(cuont=2)
            class TestIt:
                @pytest.mark.gpu(2)
                def test_two(self): pass

            @pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.gpu(cuont=3))])
            @pytest.mark.gpu
            def test_three(n): pass
        """,
    )
    own = (*COLLECTS_HERE, "-o", f"remotegpu_python={fake.path}")
    result = pytester.runpytest_inprocess(CPU, *(own if collects == "here" else ()))
    text = said(result)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    bad = [
        "test_module.py::test_one",
        "test_others.py::TestIt::test_two",
        "test_others.py::test_three[2]",
    ]
    assert [
        nodeid for nodeid in bad if f"{nodeid}: gpu() has no argument 'cuont'" not in text
    ] == []
    assert "test_three[1]" not in text
    assert not fake.started


def test_deselected_tests_may_have_what_they_like(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    fake = FakePython(tmp_path)
    pytester.makepyfile("""
        import pytest
        @pytest.mark.gpu(isolate="later")
        def test_later(): pass
        def test_here(): pass
    """)
    own = (*COLLECTS_HERE, "-o", f"remotegpu_python={fake.path}")
    result = pytester.runpytest_inprocess(CPU, "-k", "here", *own)
    assert result.ret == pytest.ExitCode.OK
    assert not fake.started
    pytester.runpytest_inprocess(CPU, "-k", "here").assert_outcomes(passed=1, deselected=1)


MERGED = """
    import pytest

    pytestmark = pytest.mark.gpu(3)

    def test_module(): pass

    @pytest.mark.gpu
    def test_bare_adds_nothing(): pass

    @pytest.mark.gpu(1)
    def test_function(): pass

    @pytest.mark.gpu(2)
    class TestClass:
        def test_class(self): pass

        @pytest.mark.gpu(count=1)
        def test_method(self): pass

        class TestInner:
            pytestmark = pytest.mark.gpu(4)
            def test_inner(self): pass

    @pytest.mark.parametrize("n", [0, pytest.param(1, marks=pytest.mark.gpu(5))])
    @pytest.mark.gpu(2)
    def test_param(n): pass
"""


def test_marks_merge_and_the_nearest_wins(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MERGED)
    result = pytester.runpytest_inprocess("--remote=local:cpu:8", "--remote-plan")
    found = {line.split("::")[-1]: line.split()[1] for line in result.outlines if "far, " in line}
    assert found == {
        "test_module": "3",
        "test_bare_adds_nothing": "3",
        "test_function": "1",
        "test_class": "2",
        "test_method": "1",
        "test_inner": "4",
        "test_param[0]": "2",
        "test_param[1]": "5",
    }


ARGUMENTS = """
    import pytest

    pytestmark = pytest.mark.gpu(type="A100", env={"A": "1", "B": "2"}, timeout=9)

    def test_module(): pass

    @pytest.mark.gpu(2, type=["L4", "T4"], min_memory_gib=20)
    class TestClass:
        @pytest.mark.gpu(min_capability=8.6, env={"A": "3"})
        def test_method(self): pass
"""

NEAR = "L4 or T4, at least 20 GiB, capability 8.6 or newer, A=3, B=2"


def test_arguments_merge_one_by_one(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ARGUMENTS)
    result = pytester.runpytest_inprocess(CPU, "--remote-plan")
    found = [line.strip() for line in result.outlines if "far, " in line]
    name = "test_arguments_merge_one_by_one.py"
    assert found == [
        f"far, 1 GPU (A100, A=1, B=2) {name}::test_module",
        f"far, 2 GPUs ({NEAR}) {name}::TestClass::test_method",
    ]


def test_marks_that_hooks_add_and_unmarked_tests(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest

        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(items):
            for item in items:
                if "heavy" in item.name:
                    item.add_marker(pytest.mark.gpu(2))
    """)
    pytester.mkpydir("gpu")
    pytester.path.joinpath("gpu", "test_folder.py").write_text("def test_in_folder(): pass\n")
    pytester.makepyfile("""
        def test_heavy(): pass
        def test_gpu_in_its_name(): pass
        class TestGpu:
            gpu = True
            def test_in_class(self): pass
    """)
    result = pytester.runpytest_inprocess(CPU, "--remote-plan")
    places = {line.split("::")[-1]: line.split()[0] for line in result.outlines if "::" in line}
    assert places == {
        "test_heavy": "far,",
        "test_gpu_in_its_name": "here",
        "test_in_class": "here",
        "test_in_folder": "here",
    }


def test_each_shape_gets_what_it_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os
        import pytest

        def test_here(): assert "REMOTEGPU_WORKER" not in os.environ

        SHAPES = [pytest.param(n, marks=pytest.mark.gpu(n)) for n in (1, 2, 3)]

        @pytest.mark.parametrize("n", SHAPES)
        def test_far(n, record_property):
            record_property("pid", os.getpid())
            assert os.environ["REMOTEGPU_WORKER"].startswith("local-")
            assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
            assert not [name for name in os.environ if name.startswith("PYTEST_REMOTEGPU")]
    """)
    result = run(pytester, CPU, "-rA")
    assert "3 GPUs asked for, and local:cpu has 2" in said(result)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.re_match_lines([r"1 GPU +1 worker +1 test ", r"2 GPUs +1 worker +1 test "])
    result.stdout.fnmatch_lines(["ERROR *::test_far[[]3[]]*", "*3 passed, 1 error*"])
