"""Latencies and rates that clients see, with intervals from the uncertainty of the constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from fathom.planner.quantity import ASSUMED, CALIBRATED, MEASURED, Quantity
from fathom.planner.serving.constants import calibration
from fathom.planner.serving.load import Fleet, Load, Served, serve

_Z = 1.645  # a 90 % interval
_ENDLESS = 500  # requests of a draw, if twice as many arrive as the fleet serves
_UNSEEN = 2.0  # factor of the noise on a chip without calibration

FIGURES: dict[str, tuple[str, str, Callable[[Served], float]]] = {
    "ttft": ("ttft", "s", lambda s: float(s.ttft.mean())),
    "ttft_p50": ("ttft", "s", lambda s: float(np.quantile(s.ttft, 0.5))),
    "ttft_p99": ("ttft", "s", lambda s: float(np.quantile(s.ttft, 0.99))),
    "tpot": ("tpot", "s", lambda s: float(s.tpot.mean())),
    "tpot_p50": ("tpot", "s", lambda s: float(np.quantile(s.tpot, 0.5))),
    "tpot_p99": ("tpot", "s", lambda s: float(np.quantile(s.tpot, 0.99))),
    "end_to_end": ("tpot", "s", lambda s: float(s.end_to_end.mean())),
    "output_rate": ("rate", "tokens/s", lambda s: s.output_rate),
    "output_rate_per_gpu": ("rate", "tokens/s", lambda s: s.output_rate / s.gpus),
}


def estimate(fleet: Fleet, load: Load, values: Mapping[str, float] | None = None) -> dict[str, Quantity]:
    """Return every figure with its 90 % interval: the constants' uncertainty, and the model's."""
    served = serve(fleet, load, calibration().values if values is None else values)
    if not load.trace:  # far beyond what a fleet serves, the spread of its latencies shows early
        is_endless = served.output_rate < served.arriving / 2
        load = replace(load, requests=min(served.requests, _ENDLESS) if is_endless else served.requests)
    drawn = [serve(fleet, load, draw) for draw in _draws(values)]
    return {
        name: _quantity(fleet, kind, unit, of(served), [of(sample) for sample in drawn])
        for name, (kind, unit, of) in FIGURES.items()
    }


def _draws(values: Mapping[str, float] | None) -> list[dict[str, float]]:
    """Return draws of the constants; about `values`, if others than the calibrated ones are given."""
    columns = calibration().draws
    count = len(next(iter(columns.values()), ()))
    mean = calibration().values
    return [
        {n: c[i] * ((values or mean).get(n, mean[n]) / mean[n]) for n, c in columns.items()}
        for i in range(count)
    ]


def _quantity(fleet: Fleet, kind: str, unit: str, value: float, drawn: list[float]) -> Quantity:
    half = _Z * math.hypot(float(np.std(np.log(drawn))) if drawn else 0.0, noise_of(fleet, kind))
    seen = is_calibrated(fleet)
    return Quantity(
        value,
        unit,
        provenance(fleet),
        f"simulation with constants of {fleet.decode.engine.name} on {fleet.decode.hardware.name}",
        value * math.exp(-half),
        value * math.exp(half),
        extrapolated=not seen,
    )


def noise_of(fleet: Fleet, kind: str) -> float:
    """Return the spread, in the logarithm, of measurements about the model."""
    of = "experts" if fleet.decode.model.is_moe else "dense"
    noise = calibration().noise[kind if kind == "ttft" else of]
    return noise if is_calibrated(fleet) else noise * _UNSEEN


def is_calibrated(fleet: Fleet) -> bool:
    """Return whether rows of this chip informed the constants."""
    return f"hbm@{fleet.decode.hardware.name}" in calibration().values


def provenance(fleet: Fleet) -> str:
    """Return the provenance of a prediction."""
    if is_calibrated(fleet):
        return CALIBRATED
    return MEASURED if fleet.decode.hardware.is_measured else ASSUMED
