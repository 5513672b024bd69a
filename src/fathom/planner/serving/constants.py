"""Constants of engines and chips: priors, what calibration made of them, and their uncertainty."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from fathom.data import load
from fathom.planner.calibration import Calibration, calibration_of
from fathom.planner.serving.deployment import Deployment

Constants = dict[str, float]
PER_CHIP = ("matmul", "hbm", "grouped", "host", "host_sequence", "eager", "link", "straggle")
PER_ENGINE = ("host", "host_sequence", "eager", "request", "graph", "all_reduce", "polling")
_CHIP_SPREAD, _ENGINE_SPREAD = 0.12, 0.3


@cache
def priors() -> dict[str, tuple[float, float, str]]:
    """Return every shared constant before calibration: value, spread of its logarithm, meaning."""
    return msgspec.convert(load(__package__, "priors"), dict[str, tuple[float, float, str]])


def prior(name: str) -> tuple[float, float]:
    """Return a constant's or a factor's value before calibration, and the spread of its logarithm."""
    if "@" in name:
        kind = name.partition("@")[2]
        if name.startswith("polling"):
            return 1.0, 1.0
        return 1.0, _ENGINE_SPREAD if kind.startswith("engine:") else _CHIP_SPREAD
    return priors()[name][:2]


@cache
def calibration() -> Calibration:
    """Return the calibrated constants of serving."""
    return calibration_of("fathom.planner.serving")


def names_for(of: Deployment) -> list[str]:
    """Return the constants and factors that a deployment's predictions rest on."""
    kin, chip = of.engine.like or of.engine.name, of.hardware.name
    return [
        *priors(),
        *(f"{name}@{chip}" for name in PER_CHIP),
        *(f"{name}@engine:{kin}" for name in PER_ENGINE),
    ]


def resolved(of: Deployment, values: Mapping[str, float]) -> Constants:
    """Return a deployment's constants, with the factors of its chip and engine."""
    result = {name: values.get(name, prior(name)[0]) for name in priors()}
    for name in names_for(of):
        if "@" in name:
            result[name.partition("@")[0]] *= values.get(name, 1.0)
    return result
