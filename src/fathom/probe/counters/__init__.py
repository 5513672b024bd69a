"""Hardware counters by PM sampling: collectors, burst sizes, and reasons why sampling is impossible."""

from fathom.probe.counters.collector import Chunk, Collector, OverflowedError
from fathom.probe.counters.reasons import explain, why_not

__all__ = ["Chunk", "Collector", "OverflowedError", "explain", "why_not"]
