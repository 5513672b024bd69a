"""The effect of each setting, from all candidates of a search, as if settings acted independently."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

USUAL = 0.1  # standard deviation of the logarithm of effects before anything is measured
LEAST_ERROR = 1e-3
ROUNDS, FAR = 10, 2.0  # of reweighting, and standard errors from which a measurement counts less (Huber)
Name = tuple[str, str]  # knob and value


@dataclass(frozen=True)
class Effect:
    """The logarithm of the time with a setting over that without it, and its standard error."""

    log: float
    error: float


def effects(measured: Sequence[tuple[Mapping[str, str], float, float]], error: float) -> dict[Name, Effect]:
    """Fit the effects to (choice, logarithm of its ratio, number of measurements); {} without any.

    `error` is the standard error of one measurement. A few disturbed ones hardly matter.
    """
    names = sorted({name for choice, _, _ in measured for name in choice.items()})
    if not names:
        return {}
    design = np.array([[name in choice.items() for name in names] for choice, _, _ in measured], float)
    logs = np.array([log for _, log, _ in measured])
    errors = max(error, LEAST_ERROR) / np.sqrt([count for _, _, count in measured])
    trusted = np.ones(len(logs))
    for _ in range(ROUNDS):
        weighted = design.T * (trusted / errors**2)
        covariance = np.linalg.inv(weighted @ design + np.eye(len(names)) / USUAL**2)
        fitted = covariance @ weighted @ logs
        off = np.abs(logs - design @ fitted) / errors
        trusted = np.minimum(1.0, FAR / np.maximum(off, FAR))
    sizes = np.sqrt(np.diag(covariance))
    return {name: Effect(float(a), float(b)) for name, a, b in zip(names, fitted, sizes, strict=True)}


def difference(first: Effect, other: Effect) -> float:
    """Return the standard error of the difference of two effects."""
    return math.hypot(first.error, other.error)
