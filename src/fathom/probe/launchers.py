"""The place of a process in a distributed job, from the variables of its launcher."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fathom.pristine import os

# Rank, number of ranks, rank on this host, number of ranks on this host. A launcher that another one
# started comes first: torchrun under srun sets RANK, and inherits SLURM_PROCID. SLURM_STEP_NUM_TASKS is set
# by srun only; a batch script has SLURM_PROCID and SLURM_NTASKS too, but is not a task of a job.
VARIABLES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    tuple(f"OMPI_COMM_WORLD_{what}" for what in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
# A variable of torchrun's workers. Their agent, which started them, prints a traceback if one of them fails.
ELASTIC = "TORCHELASTIC_RUN_ID"
_NODES = re.compile(r"(\d+)(?:\(x(\d+)\))?")  # Slurm's counts by node: 4(x2),3


@dataclass(frozen=True)
class Task:
    """One of the processes that a launcher started; the numbers on this host are None if unknown."""

    rank: int
    world: int
    local_rank: int | None = None
    local_world: int | None = None


def task(environment: Mapping[str, str] = os.environ) -> Task | None:
    """Return the place of this process in its job, or None if no launcher set it."""
    for rank, world, local_rank, local_world in VARIABLES:
        own, count = _number(environment, rank), _number(environment, world)
        if own is not None and count is not None and own < count:
            beside = _beside(environment, local_world)
            return Task(own, count, _number(environment, local_rank), beside)
    return None


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else None


def _beside(environment: Mapping[str, str], name: str) -> int | None:
    """Return the number of ranks on this host."""
    if name != "SLURM_STEP_TASKS_PER_NODE":
        return _number(environment, name)
    node = _number(environment, "SLURM_NODEID") or 0
    counts = [
        int(count)
        for count, times in _NODES.findall(environment.get(name, ""))
        for _ in range(min(int(times or 1), node + 1))
    ]
    return counts[node] if node < len(counts) else None
