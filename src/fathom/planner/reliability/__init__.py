"""Reliability: failures, checkpoints, goodput, and the wall time and cost of a long run."""

from fathom.planner.reliability.checkpoints import Checkpoint, daly, expected_goodput, young
from fathom.planner.reliability.plan import ReliabilityPlan, Run, explained, plan_reliability
from fathom.planner.reliability.rates import Failures, failures_of, logs
from fathom.planner.reliability.simulation import ENTRIES, Job, simulate

__all__ = [
    "ENTRIES",
    "Checkpoint",
    "Failures",
    "Job",
    "ReliabilityPlan",
    "Run",
    "daly",
    "expected_goodput",
    "explained",
    "failures_of",
    "logs",
    "plan_reliability",
    "simulate",
    "young",
]
