"""The pace of the host at which a replayed step is as long as the clean step."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

QUICKEST = 0.56  # ratio of the host's clean to its profiled time (benchmarks/results/cost.json, launch_bound)
FLOOR = QUICKEST / 2  # no host is faster
PACES = np.linspace(FLOOR, 1.0, 2**12 + 1)  # of which the pace of the clean steps is one


def pace_for(goal: float, length: Callable[[float], float], recorded: float) -> float:
    """Return the least of PACES above FLOOR at which a step takes `goal` ms or longer; 1 if there is none.

    `length` replays a step at a pace; it rises with the pace, up to `recorded` at 1. It is nearly linear, so
    interpolation finds the pace in a few replays.
    """
    low, high = int(np.searchsorted(PACES, QUICKEST)) - 1, len(PACES) - 1
    below, above = length(float(PACES[low])), recorded
    if below >= goal:
        low, high, below, above = 0, low, length(FLOOR), below
    halve = False
    while high - low > 1:
        before = high - low
        share = 0.5 if halve else (goal - below) / max(above - below, 1e-9)
        middle = min(max(low + math.ceil(share * before), low + 1), high - 1)
        reached = length(float(PACES[middle]))
        low, below = (middle, reached) if reached < goal else (low, below)
        high, above = (high, above) if reached < goal else (middle, reached)
        halve = not halve and 2 * (high - low) > before
    return float(PACES[high])
