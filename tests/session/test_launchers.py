"""Launchers that fit a framework and those that do not; markers of other suites that mean ranks."""

from __future__ import annotations

import pytest

from .running import CPU, said
from .test_aliases import places


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            "import horovod.torch\npytestmark = pytest.mark.gpu(2, launcher='torchrun')",
            (
                "can't start tests of Horovod, which the import of 'horovod' tells of; "
                "what can is 'mpirun'"
            ),
        ),
        (
            "from mpi4py import MPI\npytestmark = pytest.mark.gpu(2, launcher='torchrun')",
            "launcher='torchrun' can't start tests of MPI, which the import of 'mpi4py' tells of",
        ),
        (
            "pytestmark = [pytest.mark.gpu(2, launcher='mpirun'), pytest.mark.ray_dist]",
            (
                "launcher='mpirun' is none for Ray, which the marker 'ray_dist' tells of: "
                "it starts its own"
            ),
        ),
        (
            "pytestmark = [pytest.mark.gpu(2, launcher='torchrun'), pytest.mark.horovod_dist]",
            "can't start tests of Horovod, which the marker 'horovod_dist' tells of",
        ),
    ],
)
def test_a_launcher_that_does_not_fit(code: str, told: str, pytester: pytest.Pytester) -> None:
    for name in ("horovod", "mpi4py"):
        pytester.mkpydir(name).joinpath("torch.py").touch()
        pytester.path.joinpath(name, "MPI.py").touch()
    pytester.makepyfile(f"import pytest\n{code}\ndef test_it(): pass")
    result = pytester.runpytest_subprocess(CPU, "--remote-plan")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert told in said(result).replace("\n", " ")


SUITE = """
    import pytest

    @pytest.mark.torch_dist
    def test_torch(): pass

    @pytest.mark.deepspeed_dist
    def test_deepspeed(): pass

    @pytest.mark.horovod_dist
    def test_horovod(): pass

    @pytest.mark.world_size(3)
    def test_positional(): pass

    @pytest.mark.world_size(n=4)
    def test_keyword(): pass
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnknownMarkWarning")
def test_markers_of_other_suites(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    lines = [
        'torch_dist = gpu(2, launcher="torchrun")',
        'deepspeed_dist = gpu(2, launcher="torchrun")',
        'horovod_dist = gpu(2, launcher="mpirun")',
        'world_size(n) = gpu(n, launcher="torchrun")',
    ]
    cpu = f"{CPU}:8"
    result = pytester.runpytest_inprocess(cpu, "--remote-plan", "-p", "no:warnings")
    assert set(places(result).values()) == {"here"}
    for line in lines:
        assert f"ships nothing; remotegpu_aliases can say: {line}" in said(result)
    pytester.makeini("[pytest]\nremotegpu_aliases =\n  " + "\n  ".join(lines))
    for collect in ("here", "far"):
        more = ("-o", f"remotegpu_collect={collect}")
        result = pytester.runpytest_inprocess(cpu, "--remote-plan", "-p", "no:warnings", *more)
        assert places(result) == {
            "test_torch": "far, 2 GPUs by 2 ranks of torchrun",
            "test_deepspeed": "far, 2 GPUs by 2 ranks of torchrun",
            "test_horovod": "far, 2 GPUs by 2 ranks of mpirun",
            "test_positional": "far, 3 GPUs by 3 ranks of torchrun",
            "test_keyword": "far, 4 GPUs by 4 ranks of torchrun",
        }
        assert "ships nothing" not in said(result)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnknownMarkWarning")
@pytest.mark.parametrize(
    ("line", "mark", "told"),
    [
        ("many(n) = gpu(n)", "many", "gpu(count=n) by an alias: the mark gives no value"),
        ("many(n) = gpu(n)", "many('two')", "gpu(count=...) must be a whole number"),
        ("many(n) = gpu(m)", "many(2)", "remotegpu_aliases has 'many(n) = gpu(m)'; a line reads"),
        ("many(2) = gpu(2)", "many(2)", "remotegpu_aliases has 'many(2) = gpu(2)'; a line reads"),
    ],
)
def test_aliases_that_do_not_fit(
    line: str, mark: str, told: str, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(f"import pytest\n@pytest.mark.{mark}\ndef test_it(): pass")
    pytester.makeini(f"[pytest]\nremotegpu_aliases =\n  {line}")
    result = pytester.runpytest_inprocess(CPU, "--remote-plan")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert told in said(result)
