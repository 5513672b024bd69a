"""Measure the host's pace for operators on a GPU, which does their work faster than the host calls them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import perf_counter

from fathom.gauges.catalogue import PACES
from fathom.gauges.conditions import Watch
from fathom.gauges.gpu import gpu
from fathom.gauges.job import GaugeJob
from fathom.gauges.pacing import pace
from fathom.machine import Ceiling

DEVICE = "cuda"


def _paced(phase: str, job: GaugeJob) -> Ceiling:
    """Measure with the host's clock. Sensors are read only at the end, because readings delay launches."""
    here = gpu()
    with Watch(here.sensors, thread=False) as watch:
        ceiling = pace(f"pace.{phase}", phase, here.torch, DEVICE, job, perf_counter)
        here.torch.cuda.synchronize()
    return replace(ceiling, conditions=watch.conditions, flags=[*ceiling.flags, *watch.flags])


GAUGES: dict[str, Callable[[GaugeJob], Ceiling]] = {
    f"pace.{phase}": partial(_paced, phase) for phase in PACES
}
