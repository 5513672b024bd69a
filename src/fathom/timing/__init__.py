"""Clock, intervals, robust statistics: one place for what a set of timings says."""

from fathom.timing.bootstrap import interval
from fathom.timing.clock import Clock, SystemClock
from fathom.timing.robust import mad, median

__all__ = ["Clock", "SystemClock", "interval", "mad", "median"]
