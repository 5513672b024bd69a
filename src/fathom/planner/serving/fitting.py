"""Fit constants to measured latencies and rates: the most likely values given their priors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fathom.planner.serving.constants import Constants, prior

Predict = Callable[[Mapping[str, float]], dict[str, float]]
SPREADS = {"tpot": 0.1, "ttft": 0.25, "throughput": 0.1}  # of measurements about any model, in the logarithm
_STEP, _TURNS, _SLOPES, _LIMIT = 0.05, 5, (0, 2), 0.5


@dataclass(frozen=True)
class Observation:
    """Measured values by name, their prediction from constants, and the names of those that matter.

    `rough` is a quicker prediction, from which the slopes are taken.
    """

    measured: Mapping[str, float]
    predict: Predict
    names: Sequence[str]
    rough: Predict | None = None


@dataclass(frozen=True)
class Fit:
    """The most likely logarithms of the constants, their covariance, and the residual of each measurement.

    `scatter` has the residuals over the measurements' spread, divided by √(1 − leverage) as if not fitted.
    """

    names: tuple[str, ...]
    mean: np.ndarray
    covariance: np.ndarray
    scatter: np.ndarray

    def values(self) -> Constants:
        """Return the most likely constants."""
        return dict(zip(self.names, np.exp(self.mean).tolist(), strict=True))

    def draws(self, count: int, seed: int = 0) -> list[Constants]:
        """Return draws of the constants from what is known of them."""
        drawn = np.random.default_rng(seed).multivariate_normal(self.mean, self.covariance, count)
        return [dict(zip(self.names, np.exp(row).tolist(), strict=True)) for row in drawn]


def fit(
    observations: Sequence[Observation],
    start: Mapping[str, float] | None = None,
    spreads: Mapping[str, float] | None = None,
) -> Fit:
    """Return the constants that are most likely given priors (or `start` and `spreads`) and observations.

    Gauss-Newton on logarithms; an observation that no constants explain weighs less.
    """
    names = tuple(dict.fromkeys(name for o in observations for name in o.names))
    known = [(start or {}).get(name, prior(name)[0]) for name in names]
    spread = np.array([(spreads or {}).get(name, prior(name)[1]) for name in names])
    mean = np.log(known)
    theta = mean.copy()
    for turn in range(_TURNS):
        if turn in _SLOPES:  # logarithms change little in between
            slopes = _slopes(observations, names, theta)
        residual = _residuals(observations, names, theta)
        weight = 1 / np.sqrt(1 + (residual[:, None] / 2) ** 2)
        left = np.vstack([slopes * weight, np.diag(1 / spread)])
        right = np.concatenate([residual * weight[:, 0], (mean - theta) / spread])
        theta = theta + np.clip(np.linalg.lstsq(left, right, rcond=None)[0], -_LIMIT, _LIMIT)
    return fitted(names, theta, left, residual)


def fitted(names: tuple[str, ...], theta: np.ndarray, left: np.ndarray, residual: np.ndarray) -> Fit:
    """Return the fit of a last linear system, whose first rows are the measurements'."""
    covariance = np.linalg.inv(left.T @ left)
    rows = left[: len(residual)]
    leverage = np.einsum("ij,jk,ik->i", rows, covariance, rows)
    return Fit(names, theta, covariance, residual / np.sqrt(1 - leverage))


def _residuals(seen: Sequence[Observation], names: tuple[str, ...], theta: np.ndarray) -> np.ndarray:
    """Return the residuals, in units of their spread."""
    at = dict(zip(names, np.exp(theta).tolist(), strict=True))
    return np.array(
        [
            np.log(truth / predicted[key]) / SPREADS[key]
            for o in seen
            for predicted in [o.predict(at)]
            for key, truth in o.measured.items()
        ]
    )


def _slopes(seen: Sequence[Observation], names: tuple[str, ...], theta: np.ndarray) -> np.ndarray:
    """Return how predictions change with each constant, in units of their spread."""
    at = dict(zip(names, np.exp(theta).tolist(), strict=True))
    rows = []
    for o in seen:
        changes = sensitivity(o, at)
        for key in o.measured:
            rows.append(
                [changes[n.partition("@")[0]][key] / SPREADS[key] if n in o.names else 0.0 for n in names]
            )
    return np.array(rows)


def sensitivity(of: Observation, at: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the relative change of each prediction with a relative change of each constant."""
    predict = of.rough or of.predict
    before = predict(at)
    result = {}
    for name in dict.fromkeys(n.partition("@")[0] for n in of.names):
        value = at.get(name, prior(name)[0])
        after = predict({**at, name: value * float(np.exp(_STEP))})
        result[name] = {key: float(np.log(after[key] / before[key])) / _STEP for key in of.measured}
    return result
