"""Clock, intervals, robust statistics and decisions about timings."""

from fathom.timing.bootstrap import RESAMPLES, interval
from fathom.timing.clock import Clock, SystemClock
from fathom.timing.decision import MARGIN, SETTLED, Decision, decide, settled
from fathom.timing.ratio import Ratio, compare, widened_tail
from fathom.timing.robust import mad, median, midmean

__all__ = [
    "MARGIN",
    "RESAMPLES",
    "SETTLED",
    "Clock",
    "Decision",
    "Ratio",
    "SystemClock",
    "compare",
    "decide",
    "interval",
    "mad",
    "median",
    "midmean",
    "settled",
    "widened_tail",
]
