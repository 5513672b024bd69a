"""Measure the host's pace for operators on the processor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import thread_time

from fathom.gauges.catalogue import PACES
from fathom.gauges.host import cores
from fathom.gauges.job import GaugeJob
from fathom.gauges.pacing import pace
from fathom.machine import Ceiling


def _paced(phase: str, job: GaugeJob) -> Ceiling:
    """Measure with the thread's clock, which does not run while others use its core.

    Some operators use all threads even for small tensors: then it runs while the thread waits for the others.
    """
    import torch

    torch.set_num_threads(cores())
    return pace(f"host.pace.{phase}", phase, torch, "cpu", job, thread_time)


GAUGES: dict[str, Callable[[GaugeJob], Ceiling]] = {
    f"host.pace.{phase}": partial(_paced, phase) for phase in PACES
}
