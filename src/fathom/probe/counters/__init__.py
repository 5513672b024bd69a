"""Hardware counters by PM sampling: collectors, burst sizes, and reasons why sampling is impossible."""

from fathom.probe.counters.budget import INTERVAL_NS
from fathom.probe.counters.collector import CLOCK, TIME, Chunk, Collector, OverflowedError
from fathom.probe.counters.cupti import CuptiCollector
from fathom.probe.counters.reasons import OLDEST, PRIVILEGE, explain, installed, why_not
