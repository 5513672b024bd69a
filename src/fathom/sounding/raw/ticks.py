"""The clock of samples: nanoseconds since the epoch, or ticks of a counter whose rate the data tell.

While Kineto traces, the driver stamps samples with the clock that Kineto registered. Each burst has two
anchors, the host's times around the calls that start and stop it. On a busy host such a call may take
80 ms, and sampling begins somewhere within it; all bursts of a process share one clock, so those whose calls
were quick tell when the others began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np

SLACK_NS = 1_000_000_000  # a clock further off than this is no clock of the host
APART_NS = 1_000_000_000  # starts this far apart give a rate to about 1 in 10,000 or better
NEAR = 0.2  # relative; beyond it two estimates of one rate contradict each other
TRUSTED = 0.03  # what the latencies of start and stop may amount to
LEAST_FILLED = 0.05  # of a burst by its samples; the buffer may have been full before its end
QUICK_NS = 1_000_000  # a call to start that took no longer tells well enough when sampling began
NEARBY_NS = 60_000_000_000  # bursts no further apart than this: the clocks drift little meanwhile
WANDER_NS = 500_000  # and by no more than this


@dataclass(frozen=True)
class Stamped:
    """The complete samples of one burst as delivered (uint64), and the host's anchors in ns."""

    starts: np.ndarray
    ends: np.ndarray
    started: tuple[int, int]
    stopped: tuple[int, int]
    interval_ns: int | None  # None: counted in cycles, whose length is not known

    @property
    def in_nanoseconds(self) -> bool:
        """Whether the stamps lie between the anchors as they are."""
        first, last = int(self.starts[0]), int(self.ends[-1])
        return self.started[0] - SLACK_NS <= first and last <= self.stopped[1] + SLACK_NS

    @property
    def begun(self) -> float:
        """The latest time at which sampling began: as a quick call to start it returns, or 30 µs before."""
        return float(self.started[1])

    @property
    def took(self) -> int:
        """Nanoseconds of the call that starts, within which sampling began."""
        return self.started[1] - self.started[0]

    @property
    def quick(self) -> bool:
        """Whether the call that starts says well enough when sampling began."""
        return self.took <= QUICK_NS

    @property
    def _ticks(self) -> int:
        return int(self.ends[-1]) - int(self.starts[0])

    def by_interval(self) -> float | None:
        """Ticks a nanosecond if the interval was kept; None where it was counted in cycles."""
        return float(np.median(self.ends - self.starts)) / self.interval_ns if self.interval_ns else None

    def by_anchors(self) -> float:
        """Ticks a nanosecond if the samples fill the burst: too few where the last ones were lost."""
        span = sum(self.stopped) / 2 - self.begun
        return self._ticks / span if span > 0 else 0.0

    def kept_interval(self) -> float | None:
        """Ticks a nanosecond by the interval; None where the samples would not fit between the anchors."""
        keeping = self.by_interval()
        if keeping is None or keeping <= 0 or not self.holds(keeping):
            return None
        return keeping if self.by_anchors() >= LEAST_FILLED * keeping else None

    def own_rate(self) -> float | None:
        """Ticks a nanosecond from this burst alone; None where its stamps contradict its anchors."""
        kept, keeping, filling = self.kept_interval(), self.by_interval(), self.by_anchors()
        if kept is not None:
            return kept
        if keeping is None or keeping <= 0:
            return filling if filling > 0 else None
        return filling if 1 < filling / keeping <= 1 + NEAR else None

    def holds(self, ticks_per_ns: float) -> bool:
        """Whether the samples, so long, fit between the begin of the first call and the end of the last."""
        return self.started[0] + self._ticks / ticks_per_ns * (1 - TRUSTED) <= self.stopped[1]


class Begin(NamedTuple):
    """When a burst's first sample began at the latest, in ns since the epoch, and how much earlier it may."""

    at: int
    unsure_ns: int


def rate(bursts: Sequence[Stamped]) -> float | None:
    """Ticks a nanosecond of all bursts that do not stamp in nanoseconds; None where the data do not tell."""
    ticking = [burst for burst in bursts if not burst.in_nanoseconds]
    own = [found for burst in ticking if (found := burst.own_rate()) is not None]
    if not own:
        return None
    usual = median(own)
    across = _across([burst for burst in ticking if burst.quick])
    if across is None and not any(burst.kept_interval() for burst in ticking):
        across = _across(ticking)
    return across if across is not None and abs(across / usual - 1) <= NEAR else usual


def _across(bursts: Sequence[Stamped]) -> float | None:
    """The median slope over pairs of bursts: a start is uncertain by little against it."""
    slopes = [
        (int(later.starts[0]) - int(earlier.starts[0])) / (later.begun - earlier.begun)
        for place, earlier in enumerate(bursts)
        for later in bursts[place + 1 :]
        if later.begun - earlier.begun >= APART_NS
    ]
    return median(slopes) if slopes else None


def begin(burst: Stamped, bursts: Sequence[Stamped], ticks_per_ns: float) -> Begin:
    """When a burst that stamps in ticks began, by its own call if that was quick, else by all bursts nearby.

    Ticks place each burst against the others, and each began within its own call and ended before it had
    stopped: what all of these allow is how sure the begin is. Where they allow nothing, the clock is not
    one, and each burst stands alone.
    """
    alone = Begin(burst.started[1], burst.took)
    if burst.quick:
        return alone
    nearby = [b for b in bursts if abs(b.begun - burst.begun) <= NEARBY_NS and not b.in_nanoseconds]
    return _allowed(burst, nearby, ticks_per_ns) or _allowed(burst, [burst], ticks_per_ns) or alone


def _allowed(burst: Stamped, bursts: Sequence[Stamped], ticks_per_ns: float) -> Begin | None:
    """When the burst began, by the calls of all these; None where they contradict each other."""
    origin, first = burst.started[1], int(burst.starts[0])
    latest, earliest = [], []
    for one in bursts:
        after, until = (round((int(ticks) - first) / ticks_per_ns) for ticks in (one.starts[0], one.ends[-1]))
        latest += [one.started[1] - origin - after, one.stopped[1] - origin - until]
        earliest.append(one.started[0] - origin - after)
    if max(earliest, default=0) - min(latest, default=0) > WANDER_NS or not bursts:
        return None
    return Begin(origin + min(latest), max(min(latest) - max(earliest), 0))


def nanoseconds(
    burst: Stamped, ticks_per_ns: float, began: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends in ns since the epoch (int64); `began`: the first sample, else as its call returned."""
    if burst.in_nanoseconds:
        return burst.starts.astype(np.int64), burst.ends.astype(np.int64)
    first, begun = burst.starts[0], round(burst.begun if began is None else began)

    def moved(stamps: np.ndarray) -> np.ndarray:
        return begun + np.rint((stamps - first) / ticks_per_ns).astype(np.int64)

    return moved(burst.starts), moved(burst.ends)
