"""The variables by which the processes of a test know themselves and each other.

Values in, values out; knows what launchers set, and starts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["ADDRESS", "cleaned", "meeting", "of_rank"]

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


def meeting(port: int, *, store: bool) -> dict[str, str]:
    """Say where ranks find each other.

    :param store: whether the launcher holds the store there, and no rank is to make it.
    """
    return {
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": str(store),
    }


def of_rank(rank: int, world: int, run: str) -> dict[str, str]:
    """Give what torchrun sets for one of the processes on a single host, but where they meet.

    :param run: names them all together.
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
        "TORCHELASTIC_RUN_ID": run,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
    }
    return {name: str(value) for name, value in found.items()}
