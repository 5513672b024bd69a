"""Process groups of fault programs: one rank per GPU under torchrun, or this process alone."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from faults.common import Options

__all__ = ["joined"]


@contextmanager
def joined(options: Options) -> Iterator[tuple[int, int]]:
    """Join the process group and yield (rank, ranks); the rank uses its own GPU.

    Without torchrun the group has one rank, so that a program can be tried on a processor.
    """
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if options.cuda:
        options.device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(options.device)
    with tempfile.TemporaryDirectory() as folder:
        alone = {} if ranks > 1 else {"init_method": f"file://{Path(folder) / 'store'}"}
        dist.init_process_group("nccl" if options.cuda else "gloo", rank=rank, world_size=ranks, **alone)
        try:
            yield rank, ranks
        finally:
            dist.destroy_process_group()
