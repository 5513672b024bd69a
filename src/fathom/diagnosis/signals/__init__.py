"""Typed signals of one sounding, read lazily, each once: all that rules may look at."""

from __future__ import annotations

from fathom.diagnosis.signals import (
    casts,
    chains,
    device,
    gradients,
    host,
    input,
    kernels,
    numbers,
    runs,
    step,
)  # noqa: F401 - they register
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Call, Chain, Family, Product, Row, Sensors, Work
from fathom.diagnosis.signals.value import READERS, Signal, Signals, UnknownSignalError

__all__ = [
    "READERS",
    "Call",
    "Chain",
    "Family",
    "Product",
    "Recorded",
    "Row",
    "Sensors",
    "Signal",
    "Signals",
    "UnknownSignalError",
    "Work",
]
