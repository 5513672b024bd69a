"""Measure this machine's ceilings in child processes, so that the parent survives their crashes."""

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.gauges.catalogue import FULL, QUICK
    from fathom.gauges.conditions import DOUBTFUL, ConditionSensors
    from fathom.gauges.contention import BusyGpuError
    from fathom.gauges.cuda import core_of_cuda
    from fathom.gauges.keeping import completed, keep, merge, quick_missing
    from fathom.gauges.parent import GaugeProgress, measure, seconds
    from fathom.gauges.planning import MeasurementPlan, plan

# The measuring process imports this package and must not load modules that only its parent needs.
__all__, __getattr__ = exports(__name__)
