"""Measure the host's pace for operators on the processor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fathom.gauges.catalogue import PACES
from fathom.gauges.job import GaugeJob
from fathom.gauges.pacing import pace
from fathom.machine import Ceiling


def _paced(phase: str, job: GaugeJob) -> Ceiling:
    import torch

    return pace(f"host.pace.{phase}", phase, torch, "cpu", job)


GAUGES: dict[str, Callable[[GaugeJob], Ceiling]] = {
    f"host.pace.{phase}": partial(_paced, phase) for phase in PACES
}
