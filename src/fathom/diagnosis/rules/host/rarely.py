"""Rare long steps: definitions that several rules share."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.signals import Signals

LEAST = 0.05  # of the mean step: long steps that add less are scatter
LATE = (Entry.LAUNCH_LATENCY, Entry.DISPATCHING, Entry.PYTHON)  # idle time of a host without its lead


def stalled(signals: Signals) -> float:
    """Milliseconds that rare long steps add to the mean step; 0 if there are none or it is unknown."""
    ms, mean = signals.get("step.stalled_ms").value, signals.get("step.mean_ms").value
    return float(ms) if ms and mean and ms >= LEAST * mean else 0.0
