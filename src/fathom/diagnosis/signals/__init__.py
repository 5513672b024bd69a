"""Typed signals of one sounding, read lazily, each once: all that rules may look at."""

from __future__ import annotations

from fathom.diagnosis.signals import (  # noqa: F401 - they register
    allocations,
    chains,
    compiled,
    device,
    host,
    input,
    kernels,
    numbers,
    pauses,
    processor,
    rare,
    searches,
    step,
    stretched,
)
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import (
    Asked,
    Call,
    Chain,
    Compiled,
    Family,
    Holds,
    HostWork,
    Product,
    Rare,
    Reserved,
    Row,
    Searches,
    Sensors,
    Stretched,
    Work,
)
from fathom.diagnosis.signals.value import READERS, Signal, Signals, UnknownSignalError

__all__ = [
    "READERS",
    "Asked",
    "Call",
    "Chain",
    "Compiled",
    "Family",
    "Holds",
    "HostWork",
    "Product",
    "Rare",
    "Recorded",
    "Reserved",
    "Row",
    "Searches",
    "Sensors",
    "Signal",
    "Signals",
    "Stretched",
    "UnknownSignalError",
    "Work",
]
