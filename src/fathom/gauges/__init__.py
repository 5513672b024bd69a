"""Measure this machine's ceilings, each in a child process whose death the parent survives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fathom.gauges.catalogue import FULL, QUICK

if TYPE_CHECKING:
    from fathom.gauges.completing import completed
    from fathom.gauges.conditions import DOUBTFUL, ConditionSensors
    from fathom.gauges.contention import BusyGpuError
    from fathom.gauges.cuda import core_of_cuda
    from fathom.gauges.keeping import keep, merge, quick_missing, recall
    from fathom.gauges.parent import GaugeProgress, measure, seconds
    from fathom.gauges.planning import MeasurementPlan, plan

__all__ = [
    "DOUBTFUL",
    "FULL",
    "QUICK",
    "BusyGpuError",
    "ConditionSensors",
    "GaugeProgress",
    "MeasurementPlan",
    "completed",
    "core_of_cuda",
    "keep",
    "measure",
    "merge",
    "plan",
    "quick_missing",
    "recall",
    "seconds",
]

_HOMES = {
    "DOUBTFUL": "conditions",
    "ConditionSensors": "conditions",
    "completed": "completing",
    "core_of_cuda": "cuda",
    "BusyGpuError": "contention",
    "MeasurementPlan": "planning",
    "GaugeProgress": "parent",
    "keep": "keeping",
    "measure": "parent",
    "merge": "keeping",
    "plan": "planning",
    "quick_missing": "keeping",
    "recall": "keeping",
    "seconds": "parent",
}


def __getattr__(name: str) -> Any:
    # The measuring process starts from this package and must not load what only its parent needs.
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"fathom.gauges.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fathom.gauges' has no attribute '{name}'")
