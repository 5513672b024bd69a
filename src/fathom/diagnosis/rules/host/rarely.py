"""What the rules of rare long steps share."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.signals import Signals

LEAST = 0.05  # of the mean step: what long steps add beyond that is no scatter
LATE = (Entry.LAUNCH_LATENCY, Entry.DISPATCHING, Entry.PYTHON)  # without its lead the host is late


def stalled(signals: Signals) -> float:
    """Milliseconds a step that rare long steps add to the mean; 0 where there are none, or nobody knows."""
    ms, mean = signals.get("step.stalled_ms").value, signals.get("step.mean_ms").value
    return float(ms) if ms and mean and ms >= LEAST * mean else 0.0
