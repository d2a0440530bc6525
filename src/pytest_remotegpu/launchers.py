"""Which framework's tests can be started by which launcher, and markers in use for them elsewhere.

Tables and words; knows no test, no wire and no process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from pytest_remotegpu.gpu import LAUNCHERS

__all__ = ["FRAMEWORKS", "SUGGESTED", "Framework", "refusal"]


class Framework(Struct, frozen=True):
    """What trains or computes on several processes.

    :ivar launchers: what can start its processes; empty where it starts them itself.
    :ivar marks: markers that its tests have elsewhere. :ivar module: what a test file imports that
        is of no use without it; empty where that says nothing of launchers.
    """

    name: str
    launchers: tuple[str, ...]
    marks: tuple[str, ...]
    module: str = ""


FRAMEWORKS: Final = (
    Framework("torch", ("torchrun", "srun", "mpirun"), ("torch_dist",)),
    Framework("DeepSpeed", ("torchrun", "srun", "mpirun"), ("deepspeed_dist",)),
    Framework("Horovod", ("srun", "mpirun"), ("horovod_dist",), "horovod"),
    Framework("MPI", ("srun", "mpirun"), ("mpi",), "mpi4py"),
    Framework("Ray", (), ("ray_dist",), "ray"),
)
SUGGESTED: Final = {
    "torch_dist": 'torch_dist = gpu(2, launcher="torchrun")',
    "deepspeed_dist": 'deepspeed_dist = gpu(2, launcher="torchrun")',
    "horovod_dist": 'horovod_dist = gpu(2, launcher="mpirun")',
    "ray_dist": "ray_dist = gpu(2)",
    "mpi": 'mpi = gpu(2, launcher="mpirun")',
    "distributed": 'distributed = gpu(2, launcher="torchrun")',
    "world_size": 'world_size(n) = gpu(n, launcher="torchrun")',
}
"""What ``remotegpu_aliases`` can say of markers in use elsewhere."""


def refusal(launcher: str, marks: Iterable[str], modules: Iterable[str]) -> str:
    """Say why a test can't be started by a launcher, and what can; empty where it can.

    :param marks: its markers. :param modules: what its file imports, of those in the table.
    """
    marks, modules = set(marks), set(modules)
    for framework in FRAMEWORKS:
        signs = [f"the marker {mark!r}" for mark in framework.marks if mark in marks]
        signs += [f"the import of {framework.module!r}"] if framework.module in modules else []
        if not signs or launcher in framework.launchers:
            continue
        if not framework.launchers:
            return (
                f"launcher={launcher!r} is none for {framework.name}, which {signs[0]} tells of: it"
                " starts its own processes; leave the launcher out: gpu(count=N)"
            )
        usable = [name for name in framework.launchers if name in LAUNCHERS]
        planned = [name for name in framework.launchers if name not in LAUNCHERS]
        more = f" ({' and '.join(planned)} is planned)" if planned else ""
        return (
            f"launcher={launcher!r} can't start tests of {framework.name}, which {signs[0]} tells "
            f"of; what can is {' or '.join(map(repr, usable))}{more}"
        )
    return ""
