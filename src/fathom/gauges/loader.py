"""Measure the rate at which a DataLoader's workers pass tensors to the training process.

A worker passes a prepared tensor through shared memory, and the receiver copies it out, as the pinning thread
does. Decoding and collation are not included, because they belong to the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fathom.gauges.gpu import effort
from fathom.gauges.host import cores
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import Measurement, best
from fathom.gauges.timer import sample, timed
from fathom.machine import Ceiling
from fathom.units import MIB

SIZES = (16 * MIB,)  # bytes per batch: 64 images of 256 x 256 are 12 MiB
FULL_SIZES = (MIB, 16 * MIB, 64 * MIB)
WORKERS = (2, 4, 8, 16)
PREFETCH = 2  # batches per worker, torch's default
BUDGET_S = 6.0
PATIENCE_S = 60


class Ready:
    """An endless dataset that always returns the same random tensor."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.batch: Any = None

    def __len__(self) -> int:
        return 2**31

    def __getitem__(self, _: int) -> Any:
        if self.batch is None:  # created in the worker, so that the fork does not copy it
            import torch

            self.batch = torch.randint(0, 255, (self.size,), dtype=torch.uint8)
        return self.batch


def workers(available: int) -> tuple[int, ...]:
    """Return the worker counts to try: those in WORKERS that leave a core for the receiver, else 1."""
    return tuple(count for count in WORKERS if count < available) or (1,)


def _loader(job: GaugeJob) -> Ceiling:
    sizes = FULL_SIZES if job.full else SIZES
    ways = [(size, count) for size in sizes for count in workers(cores())]
    return best("host.loader", [_at(*way, BUDGET_S / len(ways), job) for way in ways])


def _at(size: int, count: int, seconds: float, job: GaugeJob) -> Measurement:
    import torch

    batches, received = _batches(size, count), torch.empty(size, dtype=torch.uint8)
    pace = effort(job, seconds, sample_s=0.02, warm_s=seconds / 3)
    try:
        taken = sample(timed(lambda: received.copy_(next(batches))), pace)
    finally:
        batches.close()
    return Measurement({"bytes": size, "workers": count}, taken, size)


def _batches(size: int, count: int) -> Any:
    """Return a generator of batches; closing it ends the workers."""
    from torch.utils.data import DataLoader

    options = {"num_workers": count, "prefetch_factor": PREFETCH, "timeout": PATIENCE_S}
    loader = DataLoader(Ready(size), batch_size=None, shuffle=False, **options)

    def batches() -> Iterator[Any]:
        yield from loader

    return batches()


GAUGES: dict[str, Callable[[GaugeJob], Ceiling]] = {"host.loader": _loader}
