"""Clocks, arrivals, confidence intervals, robust statistics, and decisions about timings."""

from fathom.timing.arrivals import ARRIVALS, next_arrival
from fathom.timing.clock import Clock, SystemClock
from fathom.timing.ratio import (
    CONFIDENCE,
    MARGIN,
    SETTLED,
    SHARE,
    Decision,
    Ratio,
    compare,
    decide,
    require_margin,
    settled,
    student,
    widened_tail,
)
from fathom.timing.statistics import RESAMPLES, interval, mad, median, midmean, weighted_quantile
