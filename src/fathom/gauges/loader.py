"""How fast a DataLoader's worker processes hand tensors to the process that trains.

A worker hands over a tensor that it has ready, through shared memory; the receiver copies it out, as the
thread that pins batches would. Nothing is decoded or collated: that is the program's own work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from time import perf_counter
from typing import Any

from fathom.gauges.gpu import effort
from fathom.gauges.host import cores
from fathom.gauges.job import Job
from fathom.gauges.timer import Run, sample
from fathom.gauges.trials import Trial, best
from fathom.machine import Ceiling
from fathom.units import MIB

SIZES = (16 * MIB,)  # of one batch: 64 images of 256 x 256 are 12 MiB
FULL_SIZES = (MIB, 16 * MIB, 64 * MIB)
WORKERS = (2, 4, 8, 16)
PREFETCH = 2  # batches a worker, as torch's default
BUDGET_S = 6.0
PATIENCE_S = 60


class Ready:
    """An endless dataset whose every item is the same random tensor."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.batch: Any = None

    def __len__(self) -> int:
        return 2**31

    def __getitem__(self, _: int) -> Any:
        if self.batch is None:  # made in the worker: it must not come along with the fork
            import torch

            self.batch = torch.randint(0, 255, (self.size,), dtype=torch.uint8)
        return self.batch


def workers(available: int) -> tuple[int, ...]:
    """Numbers of workers to try, the receiver's own core left free where there are enough."""
    return tuple(count for count in WORKERS if count < available) or (1,)


def _loader(job: Job) -> Ceiling:
    sizes = FULL_SIZES if job.full else SIZES
    ways = [(size, count) for size in sizes for count in workers(cores())]
    return best("host.loader", [_at(*way, BUDGET_S / len(ways), job) for way in ways])


def _at(size: int, count: int, seconds: float, job: Job) -> Trial:
    batches = _batches(size, count)
    try:
        taken = sample(_receive(batches, size), effort(job, seconds, sample_s=0.02, warm_s=seconds / 3))
    finally:
        batches.close()
    return Trial({"bytes": size, "workers": count}, taken, size)


def _batches(size: int, count: int) -> Any:
    """A generator of batches; closing it ends the workers."""
    from torch.utils.data import DataLoader

    options = {"num_workers": count, "prefetch_factor": PREFETCH, "timeout": PATIENCE_S}
    loader = DataLoader(Ready(size), batch_size=None, shuffle=False, **options)

    def batches() -> Iterator[Any]:
        yield from loader

    return batches()


def _receive(batches: Iterator[Any], size: int) -> Run:
    import torch

    to = torch.empty(size, dtype=torch.uint8)

    def run(count: int) -> float:
        started = perf_counter()
        for batch in islice(batches, count):
            to.copy_(batch)
        return perf_counter() - started

    return run


GAUGES: dict[str, Callable[[Job], Ceiling]] = {"host.loader": _loader}
