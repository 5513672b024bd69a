"""One of the ranks of a test: the measured collectives over gloo, on the CPU; rows on standard output."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from fathom.gauges import collective_worker
from fathom.gauges.catalogue import COLLECTIVES
from tests.support.running import wait_for
from tests.support.stand_in_gpu import Torch


def results(kind: str, rank: int, ranks: int) -> list[float]:
    """The first and last element of a rank's tensor after a call on its rank number plus one, twice."""
    source = torch.arange(4 * ranks, dtype=torch.float32) + 100 * rank
    buffer = source.clone() if kind == "all_reduce" else torch.zeros_like(source)
    collective_worker.works(dist, kind, buffer, source)()
    return buffer.tolist()


rank, ranks, meeting = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
here = Torch((9, 0))
for kind in COLLECTIVES:
    row = collective_worker.measure(here, dist, kind, 4096, 0.1)
    print(json.dumps({**row, "result": results(kind, rank, ranks)}), flush=True)
sys.stdout.flush()
# Gloo may abort where a peer is gone first, or while it is taken down: wait for all, and leave without it.
Path(f"{meeting}.{rank}").touch()
wait_for(lambda: all(Path(f"{meeting}.{other}").exists() for other in range(ranks)))
os._exit(0)
