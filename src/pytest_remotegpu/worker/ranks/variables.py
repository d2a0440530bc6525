"""The variables by which the processes of a test know themselves and each other.

Values in, values out; knows what launchers set, and starts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["cleaned", "of_rank"]

ADDRESS: Final = "127.0.0.1"
FOREIGN: Final = re.compile(
    r"((LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|NODE_RANK|MASTER_(ADDR|PORT)"
    r"|TORCHELASTIC_.*|PET_.*|SLURM_.*|SLURMD_.*|SRUN_.*|OMPI_.*|PMIX?_.*|PRTE?_.*|MPI_.*|HYDRA?_.*"
    r"|HYDI_.*|MPIEXEC_.*|MV2_COMM_.*|HOROVOD_.*|CROSS_(RANK|SIZE)|LOCAL_SIZE)"
)
"""What other launchers around this session may have set, and what would mislead a rank."""


def cleaned(environ: Mapping[str, str]) -> dict[str, str]:
    """Give an environment without what an outer launcher has put there."""
    return {name: value for name, value in environ.items() if not FOREIGN.fullmatch(name)}


def of_rank(rank: int, world: int, *, port: int, run: str, agent_store: bool) -> dict[str, str]:
    """Give what torchrun sets for one of the processes on a single host.

    :param port: where the ranks find each other. :param run: names them all together.
    :param agent_store: whether the store there is the launcher's own, and no rank is to make it.
    """
    found = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "ROLE_RANK": rank,
        "GROUP_RANK": 0,
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": world,
        "ROLE_WORLD_SIZE": world,
        "GROUP_WORLD_SIZE": 1,
        "ROLE_NAME": "default",
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": run,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_USE_AGENT_STORE": agent_store,
    }
    return {name: str(value) for name, value in found.items()}
