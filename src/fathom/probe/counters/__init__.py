"""Hardware counters by PM sampling: collectors, the budget of a burst, and why it may not be possible."""

from fathom.probe.counters.collector import Chunk, Collector, OverflowedError
from fathom.probe.counters.reasons import explain, why_not

__all__ = ["Chunk", "Collector", "OverflowedError", "explain", "why_not"]
