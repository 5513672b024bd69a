"""Serving: latencies and rates of an engine under a load, and the fewest GPUs that meet limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.planner.serving.asking import ask_serving
    from fathom.planner.serving.cluster import ROUTING, Cluster
    from fathom.planner.serving.constants import calibration, names_for, prior, priors, resolved
    from fathom.planner.serving.deployment import Deployment, Engine, engine, engines
    from fathom.planner.serving.estimate import estimate
    from fathom.planner.serving.fitting import SPREADS, Fit, Observation, fit, fitted, sensitivity
    from fathom.planner.serving.iteration import Batch, Iteration
    from fathom.planner.serving.launching import commands, load_test, recalibrated
    from fathom.planner.serving.limits import limited
    from fathom.planner.serving.load import Fleet, Load, Served, serve
    from fathom.planner.serving.plan import (
        COOLING,
        Choice,
        Question,
        ReplicaLayout,
        Sensitivity,
        ServingPlan,
        explained,
        plan_serving,
        planned_test,
    )
    from fathom.planner.serving.search import (
        Limits,
        floor,
        layouts,
        search,
        search_pools,
        smallest_pools,
        undominated,
    )
    from fathom.planner.serving.simulator import Replica, Request

__all__, __getattr__ = exports(__name__)
