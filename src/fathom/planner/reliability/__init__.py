"""Reliability: failures, checkpoints, goodput, and the wall time and cost of a long run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.planner.reliability.checkpoints import Checkpoint, daly, expected_goodput, young
    from fathom.planner.reliability.plan import (
        Failures,
        ReliabilityPlan,
        Run,
        explained,
        failures_of,
        logs,
        plan_reliability,
    )
    from fathom.planner.reliability.simulation import ENTRIES, Job, simulate

__all__, __getattr__ = exports(__name__)
